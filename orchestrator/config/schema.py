"""Generate the JSON Schema of the deployment file, for editors and programs that write such files."""

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from orchestrator.config.adapter import adapter
from orchestrator.config.rules.job import VARIABLE_PATTERN
from orchestrator.config.rules.names_and_zones import NAME_LENGTH, NAME_PATTERN
from orchestrator.config.setting_types import Setting, settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.units import Duration

SCHEMA_ID = "urn:tpuctl:deployment-file"
SCHEMA_FILE = "tpuctl.schema.json"


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12), with the types and zones of the catalogue for completion."""
    schema = adapter().json_schema()
    for key, setting in settings().items():
        subschema = property_of(schema, key)
        subschema.pop("title", None)
        subschema["description"] = describe(key)
        if isinstance(setting.default, Duration):
            subschema["default"] = str(setting.default)
        _limit(subschema, setting)
    # A fleet's file has no job: its jobs have files of their own.
    schema["required"] = [key for key in schema["required"] if key != "job"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "anyOf": [{"required": ["job"]}, {"required": ["fleet"]}],
        "title": "tpuctl deployment file",
        "description": "Describe a training job on preemptible Cloud TPUs (tpuctl.yaml).",
    }


def describe(key: str) -> str:
    """Return the text under the field *key* of the Spec, for the schema, `tpuctl init` and the reference."""
    return _descriptions()[key]


@cache
def _descriptions() -> Mapping[str, str]:
    """Return the text under each field. Reading it with pydantic would cost each command 50 ms."""
    found = {}
    sections = {"": Spec, **{f"{key}.": one.section for key, one in settings().items() if one.section}}
    for prefix, section in sections.items():
        body = ast.parse(inspect.getsource(section)).body[0]
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for field, text in pairwise(lines):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[prefix + ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return found


def property_of(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the part of the schema that describes *key*, through references and alternatives."""
    subschema: dict[str, Any] = schema
    for part in key.split("."):
        for kind in (subschema, *subschema.get("anyOf", ())):
            if "$ref" in kind:
                subschema = schema["$defs"][kind["$ref"].rsplit("/", 1)[-1]]
        subschema = subschema["properties"][part]
    return subschema


def _limit(subschema: dict[str, Any], setting: Setting) -> None:
    """Add the bounds of the field, and the limits of the rules, so that editors show them."""
    catalog = load_catalog()
    limits: Mapping[str, dict[str, Any]] = {
        "name": {"pattern": f"^{NAME_PATTERN}$", "maxLength": NAME_LENGTH},
        "tpu.other_types": {"items": {"type": "string", "enum": list(catalog.served())}, "uniqueItems": True},
        "tpu.zones": {
            "items": {"type": "string", "enum": list(catalog.zones)},
            "minItems": 1,
            "uniqueItems": True,
        },
        "job.command": {"minLength": 1},
        "job.env": {"propertyNames": {"pattern": f"^(?!TPUCTL_){VARIABLE_PATTERN}$"}},
    }
    subschema.update(limits.get(setting.dotted_name, {}))
    subschema.update(setting.bounds.as_schema() if setting.bounds else {})
    if setting.dotted_name == "tpu.type":
        one = {"type": "string", "enum": list(catalog.served())}
        del subschema["type"]
        subschema["anyOf"] = [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]
