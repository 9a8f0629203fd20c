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
_COMMON = (
    ".zip", ".gz", ".bz2", ".xz", ".zst", ".p", ".dat", ".bin", ".db", ".sqlite", ".sqlite3", ".cbm",
    ".cbsnapshot", ".ubj", ".pdopt", ".pb", ".params", ".states", ".mat", ".rds", ".vec", ".xgb",
)  # fmt: skip
"""Ends that many things have; in the folder of checkpoints they are saves."""
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
LARGE = 1024
"""Bytes from which a file of an unknown name, alone in the folder of checkpoints, is taken for a save."""
_BIN = re.compile(r"(?:pytorch_model|adapter_model|model|optimizer|weights|diffusion_)\S*\.bin")
_DATA = re.compile(r".*\.data-\d{5}-of-\d{5}")
_BARE = re.compile(r"(?:checkpoint|ckpt|snapshot)[-_]?\d+")
_FOLDER = re.compile(r"(?:\S*[-_.])?(?:checkpoint|ckpt|step|epoch|snapshot)s?[-_.=]?\d+(?:[-_.]\S*)?")


def save_like(name: str) -> bool:
    """Say whether a file of that name, without its folders, is likely to be a save."""
    lower = name.lower()
    return (
        lower.endswith(ENDINGS)
        or _BIN.fullmatch(lower) is not None
        or _DATA.fullmatch(lower) is not None
        or _BARE.fullmatch(lower) is not None
    )


def save_folder_like(name: str) -> bool:
    """Say whether a folder of that name is likely to hold one save, whatever its files are called."""
    return _FOLDER.fullmatch(name.lower()) is not None


def checkpoint_like(name: str) -> bool:
    """Say whether a file of that name is a save when it lies in the folder of checkpoints."""
    lower = name.lower()
    return save_like(name) or (lower.endswith(_COMMON) and not is_log(name) and not _STATIC.search(lower))


def maybe_save(name: str, size: int) -> bool:
    """
    Say whether a file of so many bytes may be a save where nothing in the folder has the name of one.

    xgboost writes `model.json`, LightGBM `model.txt`, spaCy `ner/model`. A file of text that is called
    otherwise, or a few bytes, may be settings.
    """
    lower = name.lower()
    # Written once at the start, mostly: such a file would make every folder look like a save.
    if is_log(name) or _STATIC.search(lower) or size == 0:
        return False
    return _STATE.search(lower) is not None or (size > LARGE and not lower.endswith(_TEXT))


def is_log(name: str) -> bool:
    """Say whether a file of that name is a log or a picture, which no program goes on from."""
    lower = name.lower()
    return _LOG.search(lower) is not None or lower.endswith(_MEDIA)
