"""JSON that somebody else wrote, or that a kill cut short: values of the expected kind, else None."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional


def json_object(path: Path) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a file, None when it is missing, torn or something else."""
    try:
        return json_value(path.read_bytes())
    except OSError:
        return None


def json_value(data: Optional[bytes]) -> Optional[Dict[str, Any]]:
    """Return the JSON object in *data*, None for anything else."""
    try:
        value = json.loads(data or b"")
    # RecursionError: a hundred thousand brackets are valid JSON and no stack is that deep.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def whole_number(value: object) -> Optional[int]:
    """Return an int that is one, None otherwise."""
    # bool is an int in Python: `true` would count as step 1.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
