"""Find, read and validate the deployment file."""

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config.config_error import ConfigError
from orchestrator.config.document import parse
from orchestrator.config.find import FILE_NAME, find
from orchestrator.config.layers import lay
from orchestrator.config.validate import validate
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError

__all__ = ["FILE_NAME", "content", "find", "load", "read", "shown"]


def load(
    path: Path, overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Spec:
    """
    Return the deployment in *path*, with variables and flags applied.

    *overrides* are dotted keys and texts (`--set tpu.spot=false`), *environ* defaults to the process's
    environment. Raise ConfigError with all findings, UsageError if the file cannot be read.
    """
    return read(content(path), shown(path), overrides, environ)


def content(path: Path) -> bytes:
    """Return the bytes of the deployment file. Raise UsageError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="check its name and permissions",
            changed="nothing was changed",
            code="TPU-112",
        ) from error


def read(
    raw: bytes,
    name: str,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Spec:
    """Return the deployment in *raw*; *name* is used in findings. Raise ConfigError as `load` does."""
    # Variables and flags first, because rules must judge the values that are used.
    document = parse(raw, name)
    origins = lay(document, overrides or {}, os.environ if environ is None else environ)
    spec, findings = validate(document, origins)
    if spec is None:
        raise ConfigError(findings)
    return spec


def shown(path: Path) -> str:
    """Return the path for people: relative if it is below the working folder."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
