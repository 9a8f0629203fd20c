"""Validate, dump and restore a Spec with pydantic."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from orchestrator.domain.spec import Spec


# Cached, because building it costs far more than using it.
@cache
def adapter() -> Any:
    """Return the validator of a Spec. Only this function imports pydantic, when first needed."""
    from pydantic import TypeAdapter

    return TypeAdapter(Spec)


def checked(data: Mapping[str, Any]) -> tuple[Spec | None, list[Mapping[str, Any]]]:
    """Return the Spec for *data*, or None and everything that pydantic refuses."""
    from pydantic import ValidationError

    try:
        return adapter().validate_python(data), []
    except ValidationError as error:
        return None, [*error.errors(include_url=False)]


def dump(spec: Spec) -> dict[str, Any]:
    """Return *spec* as plain values for JSON or YAML."""
    data: dict[str, Any] = adapter().dump_python(spec, mode="json")
    return data


def document_of(spec: Spec) -> str:
    """
    Return a deployment file for *spec*, with defaults and overrides: JSON, which is also YAML.

    YAML has no surrogate pairs, so text is not escaped; control characters must be.
    """
    # An empty section in a file means its defaults, but a node's spec has no fleet.
    parts = {key: part for key, part in dump(spec).items() if (key, part) != ("fleet", None)}
    text = json.dumps(parts, indent=1, sort_keys=True, ensure_ascii=False)
    # JSON allows these characters unescaped, YAML does not, and the loop on the VM reads the text as YAML.
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda m: f"\\u{ord(m[0]):04x}", text)


def restore(data: Mapping[str, Any]) -> Spec:
    """Return the Spec that `dump` wrote. Raise pydantic's ValidationError if *data* is none."""
    # Validated again: a stored spec may be of another version, or edited by hand.
    spec: Spec = adapter().validate_python(dict(data))
    return spec
