"""Write YAML for other systems: strings that a YAML 1.1 parser would read as another type are quoted."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from orchestrator.config.others.conversion import fits_a_block
from orchestrator.config.starter import yaml_value

_WIDTH = 100


def document(comment: str, *values: Mapping[str, Any]) -> str:
    """Return a YAML file of one or more documents, with a comment at its head."""
    head = [f"# {line}" for line in wrap(comment, _WIDTH, break_on_hyphens=False)]
    return "\n".join([*head, "\n---\n".join("\n".join(_lines(value)) for value in values)]) + "\n"


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _item(f"{indent}{yaml_value(key)}:", inner, indent)
    else:
        for inner in value:
            if isinstance(inner, Mapping):
                first, *rest = _lines(inner, f"{indent}  ")
                yield f"{indent}- {first.removeprefix(indent).removeprefix('  ')}"
                yield from rest
            else:
                yield from _item(f"{indent}-", inner, indent)


def _item(start: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        yield start
        yield from _lines(value, f"{indent}  ")
    elif isinstance(value, str) and fits_a_block(value):
        yield f"{start} |-"
        yield from (
            f"{indent}  {line}".rstrip(" ") if not line else f"{indent}  {line}" for line in value.split("\n")
        )
    else:
        yield f"{start} {yaml_value(value)}"
