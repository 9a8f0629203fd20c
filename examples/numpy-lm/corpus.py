"""
The training text: source files of Python's own standard library, which every machine has.
"""

import sysconfig
from pathlib import Path

import numpy as np

MODULES = (
    "argparse", "ast", "calendar", "configparser", "csv", "datetime", "decimal", "difflib", "doctest",
    "ftplib", "inspect", "ipaddress", "locale", "mailbox", "optparse", "pathlib", "pickle", "platform",
    "shutil", "smtplib", "statistics", "subprocess", "tarfile", "textwrap", "threading", "typing", "uuid",
)  # fmt: skip
VOCABULARY = 128


def load():
    """
    Return the text as one array of ASCII codes. The same Python version gives the same text.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [path for name in sorted(MODULES) if (path := folder / f"{name}.py").is_file()]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)


def batch(text, step, *, seed, size, context, worker=0, workers=1):
    """
    Return this worker's share of the batch of *step*: windows of *context* characters and what follows.

    The choice depends on seed and step only, so a resumed run sees exactly what an unbroken one sees.
    """
    starts = np.random.default_rng([seed, step]).integers(0, len(text) - context, size)
    share = np.array_split(starts, workers)[worker]
    windows = text[share[:, None] + np.arange(context + 1)]
    return windows[:, :-1], windows[:, -1]
