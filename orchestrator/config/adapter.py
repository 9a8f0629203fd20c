"""
pydantic's view of the Spec: validate, dump and restore.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from orchestrator.core.spec import Spec


@cache
def adapter() -> Any:
    """
    Return the validator of a Spec; pydantic is imported here, when it is first needed.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(Spec)


def dump(spec: Spec) -> dict[str, Any]:
    """
    Return *spec* as plain values for JSON or YAML.
    """
    data: dict[str, Any] = adapter().dump_python(spec, mode="json")
    return data


def restore(data: Mapping[str, Any]) -> Spec:
    """
    Return the Spec that `dump` wrote; pydantic's ValidationError tells of data that is not one.
    """
    spec: Spec = adapter().validate_python(dict(data))
    return spec
