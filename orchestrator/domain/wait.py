"""Hold what is waited for, with its time as a number: a view that counts down reads no sentence."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Wait:
    """
    What is waited for; *in_s* is the number of seconds until the next try, None if it has no time of its own.

    *message* follows the time in the sentence.
    """

    what: str
    in_s: float | None = None
    message: str = ""

    @property
    def text(self) -> str:
        """Return the sentence, such as `TPU: next try in 20 s`, without a full stop."""
        time = "" if self.in_s is None else f" in {self.in_s:.0f} s"
        return f"{self.what}{time}{self.message and f', {self.message}'}"

    def later(self, seconds: float) -> "Wait":
        """Return the wait as it is after *seconds*."""
        return self if self.in_s is None else replace(self, in_s=round(max(0.0, self.in_s - seconds), 1))
