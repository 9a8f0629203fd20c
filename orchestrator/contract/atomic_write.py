"""Writing files so that a reader sees the old or the new one, never a part."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace *path* by a file with *text*, durable before it is visible. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
