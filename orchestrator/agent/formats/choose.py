"""The formats by their names."""

from __future__ import annotations

from typing import Callable, Dict

from .auto import Auto
from .base import Format
from .fairseq import Fairseq
from .files import Files
from .folders import Accelerate, Distributed, Levanter
from .hf import HuggingFace
from .keras import Keras
from .marker import Marker
from .orbax import Orbax
from .outputs import Outputs
from .tf import TensorFlow
from .torch import Torch

FORMATS: Dict[str, Callable[[], Format]] = {
    "orbax": Orbax,
    "hf": HuggingFace,
    "fairseq": Fairseq,
    "tf": TensorFlow,
    "keras": Keras,
    "torch": Torch,
    "outputs": Outputs,
    "accelerate": Accelerate,
    "dcp": Distributed,
    "levanter": Levanter,
    "files": Files,
}
NAMES = ("marker", *FORMATS, "auto")


def format_of(name: str, marker: str) -> Format:
    """Return a format; *marker* is the file name of the user's own."""
    if name == "auto":
        return Auto(marker)
    return Marker(marker) if name == "marker" else FORMATS[name]()
