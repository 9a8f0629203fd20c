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
    return np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8).astype(np.int32)


def batch(text, step, *, seed, size, context):
    """
    Return the batch of *step*: windows of *context* + 1 characters.

    The choice depends on seed and step only, so a resumed run sees exactly what an unbroken one sees.
    """
    starts = np.random.default_rng([seed, step]).integers(0, len(text) - context, size)
    return text[starts[:, None] + np.arange(context + 1)]
