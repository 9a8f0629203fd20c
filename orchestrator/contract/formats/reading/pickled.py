"""Read plain values from a pickle, and walk it to its end, without running anything that it names."""

from __future__ import annotations

import collections
import io
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Dict, Optional, Tuple

from orchestrator.contract.json_values import whole_number

_LARGEST = 64 << 20
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle in files of torch.save before 1.6, or with the old serialization."""
_ITEM = {
    "DoubleStorage": 8, "LongStorage": 8, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16,
    "FloatStorage": 4, "IntStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "ShortStorage": 2,
    "ByteStorage": 1, "CharStorage": 1, "BoolStorage": 1, "UntypedStorage": 1, "QInt8Storage": 1,
    "QUInt8Storage": 1, "QInt32Storage": 4,
}  # fmt: skip


def updates_in(path: Path) -> Optional[int]:
    """Return `optimizer_history[-1]["num_updates"]` from a file of torch.save, None if it is missing."""
    state = state_in(path)
    try:
        return whole_number(state["optimizer_history"][-1]["num_updates"])
    except (LookupError, TypeError):  # Any value may be in its place, also a blank.
        return None


def state_in(path: Path) -> Any:
    """Return the plain values in a file of torch.save or pickle.dump, with blanks for all else; None if torn."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if zipped:
            with zipfile.ZipFile(str(path)) as archive:
                entry = next(one for one in archive.infolist() if one.filename.endswith("data.pkl"))
                # A zip may unpack to a thousand times its size, and this process shares the machine with the job.
                if entry.file_size > _LARGEST:
                    return None
                return _Reader(io.BytesIO(archive.read(entry))).load()
        with path.open("rb") as file:
            first = _Reader(file).load()
            if first != _TORCH_MAGIC:
                return first
            for _ in range(2):
                _Reader(file).load()
            return _Reader(file).load()
    except OSError:
        raise
    except Exception:  # A foreign pickle can raise any exception.
        return None


def pickle_damage(path: Path) -> str:
    """
    Walk a file of pickles to its last byte, including the tensors that the old torch.save appends.

    Return what is wrong, empty if nothing is. Raise OSError.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            first = _Reader(file).load()
            if first == _TORCH_MAGIC:
                return _old_torch_damage(path, file, size)
            while file.tell() < size:
                _Reader(file).load()
    except OSError:
        raise
    except Exception as error:
        return f"{path.name} is not a complete pickle: {type(error).__name__}"
    return ""


def _old_torch_damage(path: Path, file: BinaryIO, size: int) -> str:
    for _ in range(2):
        _Reader(file).load()
    reader = _Reader(file)
    reader.load()
    keys = _Reader(file).load()
    for key in keys:
        width, count = reader.storages[str(key)]
        held = int.from_bytes(file.read(8), "little")
        if held != count:
            return f"{path.name} is torn at its storage {key}"
        file.seek(held * width, os.SEEK_CUR)
    end = file.tell()
    return "" if end == size else f"{path.name} has {size} bytes, its storages end at {end}"


def plain_class(module: str, name: str) -> Any:
    """Return the substitute for a class or function that a pickle names."""
    if (module, name) in (("collections", "OrderedDict"), ("collections", "defaultdict")):
        return collections.OrderedDict if name == "OrderedDict" else _Defaults
    if module.split(".", maxsplit=1)[0] == "torch" and name in _ITEM:
        return name
    return Blank


class Blank:
    """Substitute for every class and function that a pickle names."""

    def __init__(self, *_args: Any, **_named: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _value: Any) -> None:
        """Ignore an item of a foreign list."""

    def extend(self, _values: Any) -> None:
        """Ignore items of a foreign list."""


class _Reader(pickle.Unpickler):
    """
    Unpickle plain values only; nothing foreign is imported or called.

    *storages* maps each tensor storage's key to (bytes of an item, number of items).
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.storages: Dict[str, Tuple[int, int]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return OrderedDict, the name of a storage class, or a blank."""
        return plain_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        """Skip a tensor's bytes, and record how many there must be."""
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[4], int):
            self.storages[str(pid[2])] = (_ITEM.get(str(pid[1]), 1), pid[4])


class _Defaults(Dict[Any, Any]):
    """Substitute for a defaultdict, whose factory is foreign code."""

    def __init__(self, *_args: Any) -> None:
        super().__init__()


_JOBLIB = b"joblib.numpy_pickle"
_HEAD = 4 << 20
"""Bytes at the start of a file in which joblib names its own class, if the file contains an array."""


def joblib_damage(path: Path, otherwise: str) -> str:
    """Return what is wrong with a joblib file, or *otherwise* if joblib did not write it. Raise OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if _JOBLIB not in file.read(_HEAD):
            return otherwise
        file.seek(0)
        try:
            while file.tell() < size:
                _JoblibReader(file).load()
            whole = file.tell() == size
        except OSError:
            raise
        # A foreign pickle can raise any exception.
        except Exception as error:
            return f"{path.name} is not a complete joblib file: {type(error).__name__}"
    return "" if whole else f"{path.name} is cut in an array"


class _Wrapper(Blank):
    """Substitute for joblib's NumpyArrayWrapper."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(Blank):
    """Substitute for numpy.dtype: `f8`, `U12`, `V16`, `O8`."""

    def __init__(self, code: Any = "", *_more: Any) -> None:
        super().__init__()
        self.code = str(code)

    def size(self) -> int:
        """Return the size of an item in bytes. Raise ValueError if the dtype is not valid."""
        found = re.fullmatch(r"[<>|=]?([a-zA-Z?])(\d*)", self.code)
        if found is None:
            raise ValueError(self.code)
        return int(found[2] or 1) * (4 if found[1] == "U" else 1)


_IN_PYTHON: Any = pickle._Unpickler  # noqa: SLF001 (joblib takes it too)


class _JoblibReader(_IN_PYTHON):  # type: ignore[misc]
    """
    Walk over the arrays of a joblib file (0.10 to 1.5, numpy_pickle.py); the C unpickler cannot do that.

    After the state of a NumpyArrayWrapper come one byte with the length of a padding (if the state names an
    alignment), the padding, and the array's bytes. An array of objects is a nested pickle instead.
    """

    dispatch: ClassVar[Dict[int, Any]] = dict(_IN_PYTHON.dispatch)

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._file = file

    def find_class(self, module: str, name: str) -> Any:
        """Return the substitute for a class."""
        if module == "joblib.numpy_pickle" and name == "NumpyArrayWrapper":
            return _Wrapper
        return _Type if (module, name) == ("numpy", "dtype") else plain_class(module, name)

    def _build(self) -> None:
        self.load_build()
        one = self.stack[-1]
        if not isinstance(one, _Wrapper):
            return
        if one.state["dtype"].code.endswith(("O", "O8")):
            type(self)(self._file).load()
            return
        items = 1
        for part in one.state["shape"]:
            items *= int(part)
        if one.state.get("numpy_array_alignment_bytes") is not None:
            self._skip(self._file.read(1)[0])
        self._skip(items * one.state["dtype"].size())

    def _skip(self, count: int) -> None:
        end = self._file.tell() + count
        if end > os.fstat(self._file.fileno()).st_size:
            raise EOFError
        self._file.seek(end)

    dispatch[pickle.BUILD[0]] = _build
