"""
Guess by name alone whether a file is a save of a training.

The guess decides what is searched for outside the checkpoint folder, and which file a warning names. Inside
the checkpoint folder nothing depends on it: its files are uploaded as they are.
"""

from __future__ import annotations

import re

ENDINGS = (
    ".pt", ".pth", ".tar", ".ckpt", ".npz", ".npy", ".safetensors", ".keras", ".h5", ".hdf5", ".msgpack",
    ".pkl", ".pickle", ".joblib", ".onnx", ".gguf", ".tflite", ".eqx", ".pdparams", ".model", ".index",
)  # fmt: skip
"""Suffixes that the common frameworks give to models and optimizers."""
_COMMON = (
    ".zip", ".gz", ".bz2", ".xz", ".zst", ".p", ".dat", ".bin", ".db", ".sqlite", ".sqlite3", ".cbm",
    ".cbsnapshot", ".ubj", ".pdopt", ".pb", ".params", ".states", ".mat", ".rds", ".vec", ".xgb",
)  # fmt: skip
"""Suffixes that many kinds of files have; in the checkpoint folder they are saves."""
_TEXT = (
    ".json", ".txt", ".yaml", ".yml", ".csv", ".tsv", ".toml", ".cfg", ".ini", ".md", ".py", ".sh", ".xml",
    ".jinja", ".jsonl", ".html", ".proto", ".pbtxt",
)  # fmt: skip
_MEDIA = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".mp4", ".wav", ".html")
_LOG = re.compile(
    r"log(?!it|ist)|metrics|history|events|stdout|stderr|progress|nohup|\.(?:out|err|wandb|lock|pid)$"
)
_STATIC = re.compile(r"config|arg|hparam|token|vocab|merges|label|class|dict|meta|stats|requirements|readme")
_STATE = re.compile(
    r"last|latest|ckpt|checkpoint|snapshot|state|model|weight|booster|param|save|xgb|lgb|lightgbm|gbm|net"
)
_PLAIN_STEP = re.compile(r"(?:step|epoch|iter|iteration|round)[-_.=]?\d+(?:\.json)?")
"""A hand-written loop may keep all of its state in `step_100.json`."""
LARGE = 1024
"""Smallest size in bytes at which a file of unknown name, alone in the checkpoint folder, counts as a save."""
_BIN = re.compile(r"(?:pytorch_model|adapter_model|model|optimizer|weights|diffusion_)\S*\.bin")
_DATA = re.compile(r".*\.data-\d{5}-of-\d{5}")
_TEMPORARY = re.compile(r"(?:^|[-._])(?:tmp|temp|partial|incomplete|lock)(?:[-._\d]|$)|~$")
_BARE = re.compile(r"(?:checkpoint|ckpt|snapshot)[-_]?\d+")
_FOLDER = re.compile(r"(?:\S*[-_.])?(?:checkpoint|ckpt|step|epoch|snapshot)s?[-_.=]?\d+(?:[-_.]\S*)?")


def save_like(name: str) -> bool:
    """Return whether a file of that base name is likely to be a save."""
    lower = name.lower()
    return (
        lower.endswith(ENDINGS)
        or _BIN.fullmatch(lower) is not None
        or _DATA.fullmatch(lower) is not None
        or _BARE.fullmatch(lower) is not None
    )


def save_folder_like(name: str) -> bool:
    """Return whether a folder of that name is likely to hold one save, whatever its files are called."""
    return _FOLDER.fullmatch(name.lower()) is not None


def checkpoint_like(name: str) -> bool:
    """Return whether a file of that name counts as a save in the checkpoint folder."""
    lower = name.lower()
    return save_like(name) or (lower.endswith(_COMMON) and not is_log(name) and not _STATIC.search(lower))


def maybe_save(name: str, size: int) -> bool:
    """
    Return whether a file may be a save although nothing in its folder has the name of one; *size* in bytes.

    xgboost writes `model.json`, LightGBM `model.txt`, spaCy `ner/model`, a small program `step_100.json`. Any
    other text file, or one of a few bytes, may hold settings.
    """
    lower = name.lower()
    if not may_hold_state(name) or size == 0:
        return False
    return (
        _STATE.search(lower) is not None
        or _PLAIN_STEP.fullmatch(lower) is not None
        or (size > LARGE and not lower.endswith(_TEXT))
    )


def may_hold_state(name: str) -> bool:
    """Return whether a training may resume from that file: it is whole, and no log, setting or vocabulary."""
    # Written once at the start, a setting would make every folder look like a save.
    return not is_log(name) and not is_temporary(name) and not _STATIC.search(name.lower())


def is_temporary(name: str) -> bool:
    """Return whether a file of that name is still being written, and gets another one when it is whole."""
    return _TEMPORARY.search(name.lower()) is not None


def is_log(name: str) -> bool:
    """Return whether a file of that name is a log or a picture, from which no program resumes."""
    lower = name.lower()
    return _LOG.search(lower) is not None or lower.endswith(_MEDIA)
