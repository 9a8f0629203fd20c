"""Hold the user's choices on the command line; imports little, since every command has one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Choice:
    """
    The chosen deployment and the options that all commands share.

    *account_override* permits acting on a deployment of another project, login or computer.
    """

    file: Path | None
    settings: Sequence[str]
    cloud: str
    as_json: bool = False
    account_override: bool = False
