"""Colour states and draw bars; no meaning is in the colour alone."""

import os
import re
import sys
from typing import IO

from orchestrator.domain.status import DeploymentState

BAR = 30
"""Characters of a bar, if the terminal has room."""
GOOD, WAITING, BAD = "\x1b[32m", "\x1b[33m", "\x1b[31m"
BOLD, DIM, END = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_STATES = (
    (GOOD, ("READY", "RUNNING", "ACTIVE", "present", "run", "runs", "done")),
    (BAD, ("PREEMPTED", "TERMINATED", "FAILED", "SUSPENDED", "failed", "ended without")),
    (WAITING, (
        "CREATING", "STARTING", "RESTARTING", "REPAIRING", "STOPPING", "DELETING", "STOPPED", "PROVISIONING",
        "STAGING", "WAITING_FOR_RESOURCES", "unknown", "absent", "machine boots", "setup", "restoring", "asked",
        "stopped",
    )),
)  # fmt: skip
_COLOUR_OF = {word: colour for colour, words in _STATES for word in words}
_WORD = re.compile(r"[A-Za-z_]+(?= ([a-z]+))?")


_GOOD_STATES = {DeploymentState.RUNNING, DeploymentState.DONE}
_BAD_STATES = {
    DeploymentState.TPU_LOST, DeploymentState.NO_TPU, DeploymentState.UNCOMMITTED, DeploymentState.FAILED,
    DeploymentState.LIMIT_REACHED, DeploymentState.REFUSED, DeploymentState.REMAINING,
}  # fmt: skip


def colour_of(found: DeploymentState) -> str:
    """Return the colour of a deployment's state."""
    return GOOD if found in _GOOD_STATES else BAD if found in _BAD_STATES else WAITING


def wants_colour(stream: "IO[str] | None" = None) -> bool:
    """Return whether *stream* (default stdout) wants colours: https://no-color.org, FORCE_COLOR, TERM=dumb."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


def draws_blocks(stream: "IO[str] | None" = None) -> bool:
    """Return whether *stream* (default stdout) can print characters beyond ASCII."""
    found: object = stream or sys.stdout
    # While rich draws a live line, it has replaced the stream by one without an encoding.
    found = getattr(found, "rich_proxied_file", found)
    return str(getattr(found, "encoding", "")).lower().startswith("utf")


def bar(share: float, width: int = BAR, *, blocks: bool = True) -> str:
    """Return a bar of *width* characters, filled by *share* (0 to 1)."""
    full = round(max(0.0, min(1.0, share)) * width)
    on, off = ("━", "╌") if blocks else ("#", ".")
    return on * full + off * (width - full)


def state(text: str) -> str:
    """Return a state in the colour of its first two words, or of the first one."""
    found = _WORD.match(text)
    colour = _COLOUR_OF.get(f"{found[0]} {found[1]}", _COLOUR_OF.get(found[0])) if found else None
    return f"{colour}{text}{END}" if colour else text
