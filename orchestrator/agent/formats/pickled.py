"""
Read one number out of a pickle without running anything that the pickle asks for.
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, Optional

from .whole import whole_number

_LARGEST = 64 << 20


def updates_in(path: Path) -> Optional[int]:
    """
    Return `optimizer_history[-1]["num_updates"]` of a file that torch.save wrote, None when it is not there.
    """
    try:
        with zipfile.ZipFile(str(path)) as archive:
            entry = next(one for one in archive.infolist() if one.filename.endswith("data.pkl"))
            if entry.file_size > _LARGEST:
                return None
            state = _Reader(io.BytesIO(archive.read(entry))).load()
        return whole_number(state["optimizer_history"][-1]["num_updates"])
    except OSError:
        raise
    # A pickle of a stranger can raise whatever its instructions lead to.
    except Exception:
        return None


class _Blank:
    """
    Stand for every class and function that a pickle names.
    """

    def __init__(self, *_args: Any, **_named: Any) -> None:
        pass

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _value: Any) -> None:
        """
        Take an item of a list that is not ours.
        """

    def extend(self, _values: Any) -> None:
        """
        Take items of a list that is not ours.
        """


class _Reader(pickle.Unpickler):
    """
    Give blanks for everything but plain values, so that nothing foreign is imported or called.
    """

    def find_class(self, module: str, name: str) -> Any:
        """
        Return OrderedDict, which state dicts are, or a blank.
        """
        return collections.OrderedDict if (module, name) == ("collections", "OrderedDict") else _Blank

    def persistent_load(self, _pid: Any) -> Any:
        """
        Leave the tensors' bytes where they are.
        """
        return None
