"""Schemas for the Kubernetes samples, reduced from published ones to types, keys and constraints.

    python -m tests.gpuwatch.fleet.manifest_schemas kubernetes_validate-*.whl monitoring.coreos.com_podmonitors.yaml

The wheel is PyPI's kubernetes-validate; the YAML file is the Prometheus operator's definition.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

SCHEMAS = Path(__file__).parent / "schemas"
_VERSION = "v1.37.0"
_KEPT = {
    "type", "properties", "required", "items", "additionalProperties", "enum", "format", "pattern", "minimum", "maximum", "anyOf",
    "oneOf", "allOf", "not", "minItems", "maxItems", "minLength", "maxLength", "$ref",
}  # fmt: skip


def reduced(node: Any, *, is_names: bool = False) -> Any:
    """Return a schema without descriptions, in which an object with properties allows no others by default."""
    if isinstance(node, list):
        return [reduced(each) for each in node]
    if not isinstance(node, dict):
        return node
    if is_names:
        return {name: reduced(each) for name, each in node.items()}
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    kept = {
        name: each if name in ("required", "enum") else reduced(each, is_names=name == "properties")
        for name, each in node.items()
        if name in _KEPT
    }
    return {"additionalProperties": False, **kept} if "properties" in kept else kept


def with_definitions(root: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with all definitions that are referenced in it."""
    taken: dict[str, Any] = {}

    def take(node: Any) -> None:
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            name = node["$ref"].rpartition("/")[2]
            node["$ref"] = f"#/$defs/{name}"
            if name not in taken:
                taken[name] = reduced(definitions[name])
                take(taken[name])
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            take(each)

    schema = reduced(dict(root))
    take(schema)
    return {**schema, "$defs": dict(sorted(taken.items()))}


def main(arguments: list[str]) -> int:
    """Write both schemas from two arguments, the wheel and the operator's definition."""
    wheel, definition = map(Path, arguments)
    with zipfile.ZipFile(wheel) as archive:
        folder = f"kubernetes_validate/kubernetes-json-schema/{_VERSION}-local-strict"
        definitions = json.loads(archive.read(f"{folder}/_definitions.json"))["$defs"]
        daemonset = with_definitions(json.loads(archive.read(f"{folder}/daemonset-apps-v1.json")), definitions)
    versions = yaml.safe_load(definition.read_text())["spec"]["versions"]
    podmonitor = reduced(next(each for each in versions if each["name"] == "v1")["schema"]["openAPIV3Schema"])
    podmonitor["properties"]["metadata"] = {"type": "object"}
    origins = {
        "daemonset": (f"DaemonSet of Kubernetes {_VERSION} (Apache-2.0)", daemonset),
        "podmonitor": ("PodMonitor of the Prometheus operator (Apache-2.0)", podmonitor),
    }
    for name, (origin, schema) in origins.items():
        whole = {"$comment": origin, "$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        text = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        (SCHEMAS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
