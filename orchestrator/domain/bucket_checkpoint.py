"""One checkpoint in the bucket, as all who read it see it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketCheckpoint:
    """
    One checkpoint in the bucket: size in bytes, *saved_at* by the bucket's clock.

    *incarnation* is None if the job wrote to the bucket itself. *objects* maps each object name to its
    sha256, empty if none was recorded. *format* is the format that was recognised. With *counted* the format
    has no step numbers, and *step* counts saves.
    """

    step: int
    incarnation: int | None
    workers: int
    size: int
    saved_at: float
    complete: bool
    message: str
    objects: tuple[tuple[str, str], ...] = ()
    format: str = ""
    counted: bool = False
