"""Say beside a field of the Spec which numbers it may have."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """
    The smallest and the largest number of a setting, with what is said of another one.

    The JSON schema shows the numbers (`config/schema.py`); the rule, its message and its hint come from here too
    (`config/rules/bounds.py`). *says* follows the number.
    """

    minimum: int
    maximum: int | None = None
    says: str = ""
    hint: str = ""

    def hold(self, number: int) -> bool:
        """Return whether *number* is within them."""
        return self.minimum <= number and (self.maximum is None or number <= self.maximum)

    def as_schema(self) -> dict[str, int]:
        """Return them in the words of JSON Schema."""
        return {"minimum": self.minimum} | ({} if self.maximum is None else {"maximum": self.maximum})
