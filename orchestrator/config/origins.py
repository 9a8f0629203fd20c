"""Find the origin of each setting of a deployment: flag, variable, line of the file, or default."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.adapter import dump
from orchestrator.config.config_error import ConfigError
from orchestrator.config.document import Document, parse
from orchestrator.config.layers import lay
from orchestrator.config.load import content, shown
from orchestrator.config.validate import validate

DEFAULT = "default"


@dataclass(frozen=True)
class ValueOrigin:
    """One setting's value and its origin."""

    setting: str
    value: Any
    origin: str


def origins_of(
    path: Path, overrides: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[ValueOrigin, ...]:
    """
    Return every setting of the deployment in *path*, in the order of the file's sections.

    Raise ConfigError with all findings, UsageError if the file cannot be read.
    """
    document = parse(content(path), shown(path))
    laid = lay(document, overrides, os.environ if environ is None else environ)
    spec, findings = validate(document, laid)
    if spec is None:
        raise ConfigError(findings)
    return tuple(
        # Only validated values are shown: a secret in the place of a reference was refused before.
        ValueOrigin(".".join(key), value, laid.get(key) or _in_file(document, key))
        for key, value in _leaves(dump(spec))
    )


def _leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _in_file(document: Document, key: tuple[str, ...]) -> str:
    """Return file:line:col of the key, or of the section that was written as one word."""
    mark = document.marks.get(key)
    return f"{document.name}:{mark.key[0]}:{mark.key[1]}" if mark else DEFAULT
