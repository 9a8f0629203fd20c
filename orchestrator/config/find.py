"""
Find the deployment file; light, because `tpuctl status` does so before anything else is imported.
"""

from pathlib import Path

from orchestrator.errors import UsageError

FILE_NAME = "tpuctl.yaml"


def find(start: Path) -> Path:
    """
    Return the deployment file in *start* or the nearest folder above it; raise UsageError when there is none.
    """
    folder = start.absolute()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            return place / FILE_NAME
    raise UsageError(
        f"no {FILE_NAME} in {folder} or any folder above it",
        hint="write one with: tpuctl init",
        unchanged="Nothing was changed.",
        code="TPU-111",
    )
