"""
The formats by their names.
"""

from __future__ import annotations

from typing import Callable, Dict

from .base import Format
from .fairseq import Fairseq
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
}
NAMES = ("marker", *FORMATS)


def format_of(name: str, marker: str) -> Format:
    """
    Return a format; *marker* is the file name of the user's own.
    """
    return Marker(marker) if name == "marker" else FORMATS[name]()
