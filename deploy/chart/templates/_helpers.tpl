{{/* Names, labels, and the values that cannot be used together. */}}

{{- define "pushup.name" -}}
{{- if contains "pushup" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-pushup" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "pushup.selector" -}}
app.kubernetes.io/name: pushup
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "pushup.labels" -}}
{{ include "pushup.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "pushup-%s" (replace "+" "_" .Chart.Version) }}
{{- end }}

{{- define "pushup.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Everything in /etc/pushup: the settings, and the keys of the Secrets under the names that the settings have for them. */}}
{{- define "pushup.files" -}}
projected:
  defaultMode: 0440
  sources:
    - configMap: {name: {{ include "pushup.name" . }}}
    {{- range $file, $from := dict "publish_keys" .Values.publishKeys "ticket_key" .Values.ticketKey "webhook_key" .Values.webhookKey "redis_url" .Values.redis }}
    {{- if $from.existingSecret }}
    - secret: {name: {{ $from.existingSecret }}, items: [{key: {{ $from.key }}, path: {{ $file }}}]}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "pushup.securityContext" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "pushup.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What the chart sets itself, before the text in `settings`: in TOML, tables come last. */}}
{{- define "pushup.settings" -}}
listen = ["0.0.0.0:8080"]
operator_listen = ["0.0.0.0:9090"]
workers = {{ .Values.workers | toJson }}
drain_seconds = {{ .Values.drainSeconds }}
state_directory = "/var/lib/pushup"
{{- if .Values.redis.existingSecret }}
broadcast_file = "/etc/pushup/redis_url"
{{- else if .Values.redis.url }}
broadcast = {{ .Values.redis.url | toJson }}
{{- else if .Values.persistence.enabled }}
broadcast = "journal:/var/lib/pushup/journal.db"
{{- end }}
{{- if .Values.publishKeys.existingSecret }}
publish_keys_file = "/etc/pushup/publish_keys"
{{- end }}
{{- if .Values.ticketKey.existingSecret }}
ticket_key_file = "/etc/pushup/ticket_key"
{{- end }}
{{- if .Values.webhookKey.existingSecret }}
webhook_key_file = "/etc/pushup/webhook_key"
{{- end }}
{{- end }}

{{- define "pushup.check" -}}
{{- $shared := or .Values.redis.url .Values.redis.existingSecret }}
{{- $settings := fromToml .Values.settings }}
{{- if hasKey $settings "Error" }}
{{- fail (printf "settings is not the text of a TOML file: %s" $settings.Error) }}
{{- end }}
{{- range $name, $value := dict
    "listen" "service" "workers" "workers" "drain_seconds" "drainSeconds" "state_directory" "persistence"
    "broadcast" "redis" "broadcast_file" "redis" "publish_keys" "publishKeys" "publish_keys_file" "publishKeys"
    "ticket_key" "ticketKey" "ticket_key_file" "ticketKey" "webhook_key" "webhookKey" "webhook_key_file" "webhookKey" }}
{{- if hasKey $settings $name }}
{{- fail (printf "settings contains %s, which the chart sets; use the value %s" $name $value) }}
{{- end }}
{{- end }}
{{- if hasKey $settings "operator_listen" }}
{{- fail "settings contains operator_listen, which the chart sets: it is port 9090 of each pod" }}
{{- end }}
{{- if not (or .Values.publishKeys.existingSecret (get $settings "allow_public_without_keys")) }}
{{- fail "publishKeys.existingSecret is required, or everyone in the cluster could publish. Make the Secret with: kubectl create secret generic pushup --from-literal=publish_keys=$(openssl rand -hex 24)" }}
{{- end }}
{{- if and .Values.redis.url .Values.redis.existingSecret }}
{{- fail "redis.url and redis.existingSecret are both set; one of them says where Redis is" }}
{{- end }}
{{- if contains "@" .Values.redis.url }}
{{- fail "redis.url contains a user or a password, and would be in a ConfigMap; put the address into a Secret, and name that in redis.existingSecret" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not $shared) }}
{{- fail "autoscaling makes several nodes, which share a log: set redis.url or redis.existingSecret" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.autoscaling.enabled) (not $shared) }}
{{- fail "several nodes share a log: set redis.url or redis.existingSecret, or replicas=1" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.host is required" }}
{{- end }}
{{- end }}
