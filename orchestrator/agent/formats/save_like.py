"""
Files that look like something a training saved, by their names alone.

It decides what is searched for outside the checkpoint folder, and which file a warning names; a name that is
missing here loses nothing inside the checkpoint folder, which is brought to the bucket as it is.
"""

from __future__ import annotations

import re

ENDINGS = (
    ".pt", ".pth", ".tar", ".ckpt", ".npz", ".npy", ".safetensors", ".keras", ".h5", ".hdf5", ".msgpack",
    ".pkl", ".pickle", ".joblib", ".onnx", ".gguf", ".tflite", ".eqx", ".pdparams", ".model", ".index",
)  # fmt: skip
"""Ends of the names that the common frameworks give to models and optimizers."""
_BIN = re.compile(r"(?:pytorch_model|adapter_model|model|optimizer|weights|diffusion_)\S*\.bin")
_DATA = re.compile(r".*\.data-\d{5}-of-\d{5}")
_BARE = re.compile(r"(?:checkpoint|ckpt|snapshot)[-_]?\d+")
_FOLDER = re.compile(r"(?:\S*[-_.])?(?:checkpoint|ckpt|step|epoch|snapshot)s?[-_.=]?\d+(?:[-_.]\S*)?")


def save_like(name: str) -> bool:
    """
    Say whether a file of that name, without its folders, is likely to be a save.
    """
    lower = name.lower()
    return (
        lower.endswith(ENDINGS)
        or _BIN.fullmatch(lower) is not None
        or _DATA.fullmatch(lower) is not None
        or _BARE.fullmatch(lower) is not None
    )


def save_folder_like(name: str) -> bool:
    """
    Say whether a folder of that name is likely to hold one save, whatever its files are called.
    """
    return _FOLDER.fullmatch(name.lower()) is not None
