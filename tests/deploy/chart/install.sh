#!/bin/sh
# Gets what the tests of the chart need, and prints the folder that has it: `helm`, `kubeconform` and `schemas`. All come
# from Go modules, which `go` checks against their published hashes. What is there already stays as it is.
set -eu
HELM=v4.3.1
KUBECONFORM=v0.8.0
KUBERNETES=v1.37.2
PROMETHEUS_OPERATOR=v0.85.0

fail() { echo "The tests of the chart cannot run: $1" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/pushup-chart
mkdir -p "$folder"
work=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# build NAME VERSION PACKAGE
build() {
    [ -x "$folder/$1-$2" ] && return
    command -v go > /dev/null || fail "$1 is built by Go 1.26 or later, and there is no go. Install it."
    echo "Building $1 $2; this may take minutes, once ..." >&2
    GOBIN=$work go install -trimpath -ldflags "-s -w" "$3@$2" > "$work/log" 2>&1 ||
        { tail -20 "$work/log" >&2; fail "$1 $2 could not be built from its Go module."; }
    mv "$work/$1" "$folder/$1-$2"
}
build kubeconform "$KUBECONFORM" github.com/yannh/kubeconform/cmd/kubeconform
build helm "$HELM" helm.sh/helm/v4/cmd/helm

schemas=$folder/schemas-$KUBERNETES-$PROMETHEUS_OPERATOR-$(cksum < "$here/schemas.py" | cut -d ' ' -f 1)
if [ ! -d "$schemas" ]; then
    # module PATH VERSION: prints the folder of its files
    module() {
        (cd "$work" && go mod download -json "$1@$2" > module.json && python3 -c "import json; print(json.load(open('module.json'))['Dir'])") ||
            fail "the Go module $1 $2 could not be downloaded."
    }
    kubernetes=$(module k8s.io/kubernetes "$KUBERNETES")
    operator=$(module github.com/prometheus-operator/prometheus-operator "$PROMETHEUS_OPERATOR")
    python3 "$here/schemas.py" "$work/schemas" "$kubernetes/api/openapi-spec/swagger.json" \
        "$operator/jsonnet/prometheus-operator/podmonitors-crd.json" || fail "the schemas could not be made."
    mv "$work/schemas" "$schemas"
fi

ln -sf "$folder/helm-$HELM" "$folder/helm"
ln -sf "$folder/kubeconform-$KUBECONFORM" "$folder/kubeconform"
ln -sfn "$schemas" "$folder/schemas"
echo "$folder"
