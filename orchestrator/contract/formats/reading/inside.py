"""Read the step from the content of a single file, without running foreign code; None if it has none."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Tuple

from orchestrator.contract.formats.reading.msgpack import msgpack_numbers
from orchestrator.contract.formats.reading.pickled import state_in
from orchestrator.contract.formats.reading.whole import MAX_HEADER, npy_integer
from orchestrator.contract.json_values import whole_number

STEPS = (
    "global_step", "iter_num", "step", "iteration", "num_updates", "updates", "n_iter", "iter", "steps", "it",
    "total_steps", "current_step", "train_step", "step_count", "n_updates", "opt_step",
)  # fmt: skip
"""Keys under which programs store their step: Lightning, nanoGPT, flax, fairseq and hand-written loops."""
EPOCHS = ("epoch", "finished_epochs", "epochs_run", "EPOCHS_RUN", "current_epoch", "epochs", "last_epoch")
_NESTED = ("state", "trainer_state", "train_state", "progress", "meta", "metadata", "training", "trainer")
_ERRORS = (ValueError, KeyError, TypeError, IndexError, AttributeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Position:
    """The progress that a file contains: its step, and its epoch."""

    step: Optional[int] = None
    epoch: Optional[int] = None


def position_in(path: Path) -> Position:
    """Return step and epoch from the content of a whole file. Raise OSError."""
    name = path.name.lower()
    try:
        if name.endswith(".safetensors"):
            return _among(_safetensors_metadata(path))
        if name.endswith(".npz"):
            return _among(_arrays(path))
        if name.endswith(".json"):
            return _among(json.loads(path.read_bytes()) if path.stat().st_size < MAX_HEADER else {})
        with path.open("rb") as file:
            head = file.read(4)
        if head[:2] == b"PK" or head[:1] == b"\x80":
            state = state_in(path)
            # Some programs pickle an object that holds the state as attributes.
            return _among(state) if isinstance(state, Mapping) else Position()
        if name.endswith(".msgpack") or "." not in name:
            return _among(msgpack_numbers(path))
    # An unreadable file has no step; `damage_of` reports that it is damaged.
    except (*_ERRORS, struct.error, RecursionError):
        pass
    return Position()


def _among(state: Any) -> Position:
    """Look for the known keys, in the state itself first."""
    found = Position()
    for one in _levels(state):
        step = next((n for n in (_number(one.get(key)) for key in STEPS) if n is not None), None)
        epoch = next((n for n in (_number(one.get(key)) for key in EPOCHS) if n is not None), None)
        found = Position(found.step if found.step is not None else step, _first(found.epoch, epoch))
    return found


def _first(*numbers: Optional[int]) -> Optional[int]:
    return next((number for number in numbers if number is not None), None)


def _levels(state: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(state, Mapping):
        return
    yield state
    for key in _NESTED:
        inner = state.get(key)
        if isinstance(inner, Mapping):
            yield inner


def _number(value: Any) -> Optional[int]:
    # The metadata of safetensors holds texts only.
    if isinstance(value, str) and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    number = whole_number(value)
    return number if number is not None and number >= 0 else None


def _safetensors_metadata(path: Path) -> Any:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= MAX_HEADER else {}
    return header.get("__metadata__", {})


def _arrays(path: Path) -> Any:
    """Return the integers of an npz archive by name."""
    found = {}
    with zipfile.ZipFile(str(path)) as archive:
        for entry in archive.infolist():
            key, dot, ending = entry.filename.rpartition(".")
            # A step is one number; a large array of that name is something else.
            if dot and ending == "npy" and key in _WANTED and entry.file_size < 4096:
                found[key] = npy_integer(archive.read(entry))
    return found


_WANTED: Tuple[str, ...] = (*STEPS, *EPOCHS)
