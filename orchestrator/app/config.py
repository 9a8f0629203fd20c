"""Read each setting of a deployment and where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.find import find
from orchestrator.config.layers import overrides_of
from orchestrator.config.origins import DEFAULT, ValueOrigin, origins_of


@dataclass(frozen=True)
class ReadSettings:
    """The settings of *file*, in its order; with *everything* also those that have their default."""

    file: Path
    values: Sequence[ValueOrigin]
    everything: bool


def read_settings(file: Path | None, settings: Sequence[str], *, everything: bool) -> ReadSettings:
    """
    Return the settings of *file*, or of the deployment file found from here, with *settings* applied.

    Raise UsageError.
    """
    path = file or find(Path.cwd())
    found = origins_of(path, overrides_of(settings))
    return ReadSettings(path, [one for one in found if everything or one.origin != DEFAULT], everything)
