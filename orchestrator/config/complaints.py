"""Report everything that is wrong with a deployment file at once."""

from dataclasses import asdict, dataclass

from orchestrator.errors import UsageError


@dataclass(frozen=True)
class Complaint:
    """
    Describe one mistake: where, what, and what to do.

    *path* is the file, or the flag or variable that set the value; then *line* is 0. *line* and *col* count
    from 1; *key* is dotted, such as `tpu.zones[0]`.
    """

    path: str
    line: int
    col: int
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.col}" if self.line else self.path
        # The name of a flag or variable already shows which setting it is.
        key = "" if place.endswith(f" {self.key}") else self.key
        text = ": ".join(part for part in (place, key, self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(UsageError):
    """Refuse a deployment file with all complaints about it."""

    code = "TPU-110"

    def __init__(self, complaints: tuple[Complaint, ...]) -> None:
        super().__init__(
            # All at once, so that one correction of the file is enough.
            "\n".join(str(complaint) for complaint in complaints),
            hint="correct this, then run: tpuctl plan",
            changed="Nothing was changed.",
        )
        self.complaints = complaints

    def as_dict(self) -> dict[str, object]:
        """Return the error in its `--json` form, with a list of the complaints."""
        return {**super().as_dict(), "complaints": [asdict(complaint) for complaint in self.complaints]}
