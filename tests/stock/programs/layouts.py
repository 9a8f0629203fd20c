"""
Write and read what numpy and PyTorch write, with the standard library: these programs install nothing.

A test beside this file holds the layouts against the real numpy.
"""

import ast
import collections
import io
import os
import pickle
import struct
import sys
import time
import types
import zipfile

MAGIC = b"\x93NUMPY\x01\x00"


def step_time():
    """Take the time of a step; the last steps come only once the test allows it (STOCK_HURRY)."""
    hurry = os.environ.get("STOCK_HURRY", "")
    # A step of a training program takes its time.
    time.sleep(0.0 if not hurry or os.path.exists(hurry) else 0.2)


def wait_for_the_test():
    """Do not end before the test allows it."""
    while os.environ.get("STOCK_HURRY") and not os.path.exists(os.environ["STOCK_HURRY"]):
        time.sleep(0.05)  # this program runs on a machine: nothing of ours is there to wait with


def npy(values):
    """Return the bytes of an .npy file with 64-bit floats."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(values)},), }}"
    head += " " * (-(len(MAGIC) + 2 + len(head) + 1) % 64) + "\n"
    return MAGIC + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{len(values)}d", *values)


def savez(path, **arrays):
    """Write an .npz file in place, as numpy.savez does."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, values in arrays.items():
            file.writestr(f"{name}.npy", npy(values))


def loadz(path):
    """Return the arrays of an .npz file."""
    found = {}
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            data = file.read(name)
            (size,) = struct.unpack("<H", data[8:10])
            count = ast.literal_eval(data[10 : 10 + size].decode().strip())["shape"][0]
            found[name[:-4]] = list(struct.unpack(f"<{count}d", data[10 + size :]))
    return found


class Tensor:
    """A vector that is pickled as torch.save pickles one: its numbers lie beside the pickle, not in it."""

    def __init__(self, values):
        self.values = values

    def __reduce__(self):
        rebuild = _named("torch._utils", "_rebuild_tensor_v2")
        return rebuild, (Storage(self.values), 0, (len(self.values),), (1,), False, collections.OrderedDict())


class Storage:
    """The numbers of a vector."""

    def __init__(self, values):
        self.values = values


def save(path, content):
    """Write what torch.save writes, in place and under the name of the file."""
    root, storages = os.path.basename(path).rpartition(".")[0], []

    class Pickler(pickle.Pickler):
        def persistent_id(self, one):
            if not isinstance(one, Storage):
                return None
            storages.append(struct.pack(f"<{len(one.values)}f", *one.values))
            kind = _named("torch", "FloatStorage")
            return ("storage", kind, str(len(storages) - 1), "cpu", len(one.values))

    pickled = io.BytesIO()
    Pickler(pickled, 2).dump(content)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr(f"{root}/data.pkl", pickled.getvalue())
        file.writestr(f"{root}/.format_version", "1")
        file.writestr(f"{root}/byteorder", "little")
        for number, data in enumerate(storages):
            file.writestr(f"{root}/data/{number}", data)
        file.writestr(f"{root}/version", "3\n")
        file.writestr(f"{root}/.data/serialization_id", "0" * 40)


def load(path):
    """Return what `save` has written, with vectors as lists."""
    with zipfile.ZipFile(path) as file:
        root = file.namelist()[0].partition("/")[0]

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, key):
                return list(struct.unpack(f"<{key[4]}f", file.read(f"{root}/data/{key[2]}")))

            def find_class(self, module, name):
                if module == "torch._utils":
                    return lambda storage, *_: storage
                return _named(module, name) if module == "torch" else super().find_class(module, name)

        return Unpickler(io.BytesIO(file.read(f"{root}/data.pkl"))).load()


def _named(module, name):
    """Return a global that is pickled under a name of PyTorch's."""
    for one in ("torch", module):
        sys.modules.setdefault(one, types.ModuleType(one))
    there = sys.modules[module]
    if not hasattr(there, name):
        made = type(name, (), {})
        made.__module__, made.__qualname__ = module, name
        setattr(there, name, made)
    return getattr(there, name)
