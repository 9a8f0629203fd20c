"""What the user chose on the command line; light, for every command is given one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Choice:
    """
    Hold which deployment is meant, and how a command answers.

    With *account_override* it may act although another project, login or computer brought the deployment up.
    """

    file: Path | None
    settings: Sequence[str]
    cloud: str
    as_json: bool = False
    account_override: bool = False
