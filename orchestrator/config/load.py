"""Find, read and check the deployment file."""

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config.complaints import ConfigError
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
    Return the deployment that *path* describes, with variables and flags laid over it.

    *overrides* are dotted keys and texts (`--set tpu.spot=false`), *environ* is the process's environment
    when left out. Raise ConfigError with every complaint, UsageError when the file cannot be read.
    """
    return read(content(path), shown(path), overrides, environ)


def content(path: Path) -> bytes:
    """Return what the deployment file holds. Raise UsageError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="check its name and permissions", code="TPU-112"
        ) from error


def read(
    raw: bytes,
    name: str,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Spec:
    """Return the deployment in *raw*; *name* is used in complaints. Raise ConfigError as `load` does."""
    # The order must not change: rules judge what is used, so variables and
    # flags are laid over the file first.
    document = parse(raw, name)
    origins = lay(document, overrides or {}, os.environ if environ is None else environ)
    spec, complaints = validate(document, origins)
    if spec is None:
        raise ConfigError(complaints)
    return spec


def shown(path: Path) -> str:
    """Return the path as people see it: relative if it is below the working folder."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
