"""Read JSON that may be foreign or truncated: values of the expected type, else None."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional


def json_object(path: Path) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a file, or None if the file is missing, torn or holds another value."""
    try:
        return json_value(path.read_bytes())
    except OSError:
        return None


def json_value(data: Optional[bytes]) -> Optional[Dict[str, Any]]:
    """Return the JSON object in *data*, or None if it is not valid JSON or another value."""
    try:
        value = json.loads(data or b"")
    # RecursionError: deeply nested brackets are valid JSON and exceed the stack.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def whole_number(value: object) -> Optional[int]:
    """Return *value* if it is an integer (not a bool), else None."""
    # bool is an int in Python: `true` would count as step 1.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
