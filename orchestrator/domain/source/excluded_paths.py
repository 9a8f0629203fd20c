"""Name what is not sent with the code, and the pattern that excludes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PatternLine:
    """Where a pattern of the user stands: the file, relative to the source, and its line, from 1."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class ExcludedPath:
    """
    A file or a whole folder (path ends in "/") that is excluded.

    *line* has the user's pattern; without one *is_key* says that it is a key by its name. *size* is in bytes,
    *more* means that the folder has more files than were counted.
    """

    path: str
    line: PatternLine | None
    is_key: bool
    files: int
    size: int
    more: bool = False

    @property
    def is_folder(self) -> bool:
        """Return whether it is a whole folder."""
        return self.path.endswith("/")

    @property
    def pattern(self) -> str:
        """Return the place of the user's pattern as file:line, "" without one."""
        return str(self.line or "")
