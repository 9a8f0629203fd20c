"""
What the job says about itself in TPUCTL_PROGRESS_FILE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Pattern

from .layout import read_json


@dataclass(frozen=True)
class Progress:
    """
    Hold the step and loss that the job reported last, and for how long its last save stopped the training.

    None where it reported none.
    """

    step: Optional[int] = None
    loss: Optional[float] = None
    save_seconds: Optional[float] = None


def read_progress(path: Path) -> Progress:
    """
    Return what the file says; anything that is not a number is nothing.
    """
    value = read_json(path)
    step, loss = value.get("step"), _number(value.get("loss"))
    whole = step if isinstance(step, int) and not isinstance(step, bool) else None
    return Progress(whole, loss, _number(value.get("save_seconds")))


def step_in(output: bytes, pattern: Optional[Pattern[bytes]]) -> Optional[int]:
    """
    Return the last step that a framework printed, by the *pattern* of its format.
    """
    found = pattern.findall(output) if pattern is not None else []
    return int(found[-1]) if found else None


def _number(value: Any) -> Optional[float]:
    """
    Return a finite float or None: NaN is no JSON.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
