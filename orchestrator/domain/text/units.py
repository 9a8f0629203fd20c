"""Parse quantities that people write with a unit."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A hundred years: a longer time is a mistake.
_LONGEST = 100 * 365 * 86400


def _core_schema_of(parse: Callable[[object], Any]) -> Any:
    """Return pydantic's schema of a value that *parse* reads and that is written as text."""
    # Imported only when a model is built: the values themselves need no pydantic.
    from pydantic_core import core_schema

    return core_schema.no_info_plain_validator_function(
        parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
    )


class Duration(float):
    """Seconds, written as `15s`, `60m`, `12h` or `7d`."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Parse a duration; raise ValueError if *text* is not a positive number with a unit."""
        if isinstance(text, Duration):
            return text
        # The unit is required: 60 could mean minutes, and a ttl of 60 seconds ends a deployment at once.
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(text).strip())
        if not match or not 0 < float(match[1]) * _SECONDS[match[2]] < _LONGEST:
            raise ValueError("write a positive time with a unit: 15s, 60m, 12h or 7d")
        return cls(float(match[1]) * _SECONDS[match[2]])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Tell pydantic how to validate a duration."""
        return _core_schema_of(cls.parse)

    @classmethod
    def __get_pydantic_json_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        """Describe a duration in the published JSON Schema."""
        return {"type": "string", "pattern": r"^\d+(\.\d+)?[smhd]$", "examples": ["15s", "60m", "7d"]}

    def __str__(self) -> str:
        # Whole units and at most six digits, so that the text parses back to the same number.
        for unit in ("d", "h", "m"):
            if self >= _SECONDS[unit] and self % _SECONDS[unit] == 0:
                return f"{int(self // _SECONDS[unit])}{unit}"
        return f"{self:.6f}".rstrip("0").rstrip(".") + "s"


class Until(str):
    """A point in time: a duration such as `36h`, or a date with time and time zone."""

    __slots__ = ()

    @property
    def after(self) -> float | None:
        """Return the seconds from the start, None for a date."""
        return Duration.parse(self) if re.fullmatch(r"[0-9.]+[smhd]", self) else None

    @classmethod
    def parse(cls, text: object) -> "Until":
        """Parse a duration or a date; raise ValueError if *text* is neither."""
        if isinstance(text, datetime):
            text = text.isoformat()
        found = cls(str(text).strip())
        found.at(0.0)
        return found

    def at(self, start: float) -> float:
        """Return the time in seconds since the epoch; a duration counts from *start*."""
        if self.after is not None:
            return start + self.after
        message = "write a time from the first up such as 36h, or a date such as 2030-01-31T18:00Z"
        try:
            found = datetime.fromisoformat(self.replace("Z", "+00:00"))
        except ValueError as error:
            raise ValueError(message) from error
        # Local time would mean another deadline on the VM, which runs in UTC.
        if found.tzinfo is None:
            raise ValueError(f"{message}; the time zone is missing")
        return found.timestamp()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Tell pydantic how to validate a point in time."""
        return _core_schema_of(cls.parse)

    @classmethod
    def __get_pydantic_json_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        """Describe a point in time in the published JSON Schema."""
        return {"type": "string", "examples": ["36h", "2030-01-31T18:00:00Z"]}
