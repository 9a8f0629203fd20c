"""Change a frozen value, or return the same object if nothing changes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["updated"]
T = TypeVar("T")

if TYPE_CHECKING:
    # Only `replace` tells the type checker which fields exist.
    from dataclasses import replace as updated
else:

    def updated(value: T, **fields: Any) -> T:
        """Return *value* with *fields* replaced; the same object if nothing changes, which compares faster."""
        new = any(getattr(value, name) != field for name, field in fields.items())
        return replace(value, **fields) if new else value
