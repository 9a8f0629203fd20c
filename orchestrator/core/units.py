"""
Quantities that people write with a unit.
"""

import re
from typing import Any

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A hundred years. Beyond it a time is a slip, and sums with it lose their meaning.
_LONGEST = 100 * 365 * 86400


class Duration(float):
    """
    Hold seconds, written as `15s`, `60m`, `12h` or `7d`.
    """

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """
        Read a duration; raise ValueError when *text* is not a positive number with a unit.
        """
        if isinstance(text, Duration):
            return text
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(text).strip())
        if not match or not 0 < float(match[1]) * _SECONDS[match[2]] < _LONGEST:
            raise ValueError("write a positive time with a unit: 15s, 60m, 12h or 7d")
        return cls(float(match[1]) * _SECONDS[match[2]])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """
        Tell pydantic how to validate a duration, without importing it for those who do not need it.
        """
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        """
        Describe a duration in the published JSON Schema.
        """
        return {"type": "string", "pattern": r"^\d+(\.\d+)?[smhd]$", "examples": ["15s", "60m", "7d"]}

    def __str__(self) -> str:
        for unit in ("d", "h", "m"):
            if self >= _SECONDS[unit] and self % _SECONDS[unit] == 0:
                return f"{int(self // _SECONDS[unit])}{unit}"
        return f"{self:.6f}".rstrip("0").rstrip(".") + "s"
