"""Map names to formats."""

from __future__ import annotations

from typing import Callable, Dict

from orchestrator.contract.formats.auto import Auto
from orchestrator.contract.formats.base import Format
from orchestrator.contract.formats.fairseq import Fairseq
from orchestrator.contract.formats.files import Files
from orchestrator.contract.formats.folders import Accelerate, Distributed, Levanter
from orchestrator.contract.formats.hf import HuggingFace
from orchestrator.contract.formats.keras import Keras
from orchestrator.contract.formats.marker import Marker
from orchestrator.contract.formats.orbax import Orbax
from orchestrator.contract.formats.outputs import Outputs
from orchestrator.contract.formats.tf import TensorFlow
from orchestrator.contract.formats.torch import Torch

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
    """Return a format by name; *marker* is the file name for the format `marker`."""
    if name == "auto":
        return Auto(marker)
    return Marker(marker) if name == "marker" else FORMATS[name]()
