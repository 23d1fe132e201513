"""Makes the JSON schemas of Kubernetes' objects: `python3 schemas.py FOLDER swagger.json podmonitors-crd.json`.

From the OpenAPI document of Kubernetes, and from the definition of a PodMonitor. kubeconform looks for the schema
of a StatefulSet in `statefulset-apps-v1.json`. Unknown fields are errors.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

KINDS = (
    "core.v1.ConfigMap", "core.v1.Pod", "core.v1.Service", "core.v1.ServiceAccount", "apps.v1.StatefulSet",
    "autoscaling.v2.HorizontalPodAutoscaler", "networking.v1.Ingress", "networking.v1.NetworkPolicy",
    "policy.v1.PodDisruptionBudget",
)  # fmt: skip
"""What the chart has."""

WRITTEN_IN_SEVERAL_WAYS: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["number", "string"]},
}
"""In the OpenAPI document these are strings, which is how Kubernetes shows them."""


def strict(schema: Any) -> Any:
    """The schema without descriptions, in which an object has no other fields than those that it names."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: strict(value) for key, value in schema.items() if not (key == "description" and isinstance(value, str))
    }
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        kept.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        kept["type"] = ["integer", "string"]
    return kept


def of_kind(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one kind, with all the definitions that it needs."""
    needed: dict[str, Any] = {}
    left = [f"io.k8s.api.{name}"]
    while left:
        definition = left.pop()
        if definition not in needed:
            needed[definition] = WRITTEN_IN_SEVERAL_WAYS.get(definition) or strict(definitions[definition])
            left += re.findall(r'"#/definitions/([^"]+)"', json.dumps(needed[definition]))
    [known] = definitions[f"io.k8s.api.{name}"]["x-kubernetes-group-version-kind"]
    version = f"{known['group']}/{known['version']}".removeprefix("/")
    fixed = {"apiVersion": {"enum": [version]}, "kind": {"enum": [known["kind"]]}}
    return {
        "allOf": [{"$ref": f"#/definitions/io.k8s.api.{name}"}],
        "properties": fixed,
        "required": ["apiVersion", "kind", "metadata"],
        "definitions": needed,
    }


def main(folder: Path, openapi: Path, pod_monitor: Path) -> None:
    folder.mkdir()
    definitions = json.loads(openapi.read_text())["definitions"]
    schemas = {}
    for name in KINDS:
        group, version, kind = name.split(".")
        suffix = version if group == "core" else f"{group}-{version}"
        schemas[f"{kind.lower()}-{suffix}"] = of_kind(name, definitions)
    [version] = json.loads(pod_monitor.read_text())["spec"]["versions"]
    schemas["podmonitor-monitoring-v1"] = strict(version["schema"]["openAPIV3Schema"]) | {
        "properties": strict(version["schema"]["openAPIV3Schema"]["properties"])
        | {"metadata": {"type": "object", "required": ["name"]}}
    }
    for name, schema in schemas.items():
        (folder / f"{name}.json").write_text(json.dumps(schema))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
