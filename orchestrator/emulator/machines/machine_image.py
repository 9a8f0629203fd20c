"""Describe Google's machine images as far as a local machine can imitate them (docs/facts.md 5.5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.emulator.machines.machine_python import base_interpreter, version_of


@dataclass(frozen=True)
class MachineImage:
    """An image: the version of its `python3`, and whether that has pip. None of them has ensurepip."""

    name: str
    python: str
    pip: bool


IMAGES: Mapping[str, MachineImage] = {
    "tpu": MachineImage("tpu-ubuntu2204", "3.10", pip=True),
    "vm": MachineImage("ubuntu-2404", "3.12", pip=False),
}
"""The images by kind of machine."""
CRON, GCLOUD = "cron", "gcloud"
ABSENT = (CRON, GCLOUD)
"""What an option can remove from the machines of a local cloud."""


def interpreter_for(kind: str, pythons: Mapping[str, Path], wanted: str = "") -> Path:
    """
    Return the computer's interpreter for `python3` of a machine of *kind*: *wanted*, else the image's version.

    If the computer lacks that version, it is the interpreter that runs the local cloud.
    """
    return pythons.get(wanted or IMAGES[kind].python) or base_interpreter()


def described(pythons: Mapping[str, Path], wanted: str = "") -> list[dict[str, str]]:
    """Return for each kind of machine its image, its Python, and the Python of Google's image."""
    return [
        {
            "kind": kind,
            "image": image.name,
            "python": version_of(interpreter_for(kind, pythons, wanted)),
            "python_of_image": image.python,
        }
        for kind, image in IMAGES.items()
    ]
