"""
Whether a file of joblib is whole: a pickle with the bytes of each array right behind its description.

The layout (joblib 0.10 to 1.5, numpy_pickle.py): after the state of a `NumpyArrayWrapper` come one byte with
the length of a padding (where the state names an alignment), the padding, and the array's bytes. An array of
objects is a pickle of its own there. Nothing foreign is run.
"""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Dict

from orchestrator.contract.formats.pickled import Blank, plain_class

_NAME = b"joblib.numpy_pickle"
_HEAD = 4 << 20


def joblib_fault(path: Path, otherwise: str) -> str:
    """Return what is wrong with a file of joblib, and *otherwise* for a file that is none. Raises OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if _NAME not in file.read(_HEAD):
            return otherwise
        file.seek(0)
        try:
            while file.tell() < size:
                _Reader(file).load()
            whole = file.tell() == size
        except OSError:
            raise
        # A pickle of a stranger can raise whatever its instructions lead to.
        except Exception as error:
            return f"{path.name} is no whole file of joblib: {type(error).__name__}"
    return "" if whole else f"{path.name} is cut in an array"


class _Wrapper(Blank):
    """Stand for joblib's NumpyArrayWrapper."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(Blank):
    """Stand for numpy.dtype: `f8`, `U12`, `V16`, `O8`."""

    def __init__(self, code: Any = "", *_more: Any) -> None:
        super().__init__()
        self.code = str(code)

    def size(self) -> int:
        """Return the bytes of an item. Raises ValueError for a type that is none."""
        found = re.fullmatch(r"[<>|=]?([a-zA-Z?])(\d*)", self.code)
        if found is None:
            raise ValueError(self.code)
        return int(found[2] or 1) * (4 if found[1] == "U" else 1)


_IN_PYTHON: Any = pickle._Unpickler  # noqa: SLF001 (joblib takes it too)


class _Reader(_IN_PYTHON):  # type: ignore[misc]
    """Go over the arrays. The reader in C has no place to do that."""

    dispatch: ClassVar[Dict[int, Any]] = dict(_IN_PYTHON.dispatch)

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._file = file

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that stands for the real one."""
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
