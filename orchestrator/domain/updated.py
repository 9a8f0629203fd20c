"""Change a frozen value, or leave it the very one that it is."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["updated"]
T = TypeVar("T")

if TYPE_CHECKING:
    # The type checker knows of `replace` alone which fields there are.
    from dataclasses import replace as updated
else:

    def updated(value: T, **fields: Any) -> T:
        """Return *value* with *fields*; the same one where nothing is new, which compares much faster."""
        new = any(getattr(value, name) != field for name, field in fields.items())
        return replace(value, **fields) if new else value
