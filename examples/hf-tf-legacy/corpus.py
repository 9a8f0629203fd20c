"""
The training text: sentences from the documentation inside Python's own standard library.
"""

import ast
import re
import sysconfig
from pathlib import Path

MODULES = (
    "argparse", "calendar", "configparser", "csv", "datetime", "decimal", "difflib", "doctest", "ftplib",
    "inspect", "ipaddress", "locale", "mailbox", "optparse", "pathlib", "pickle", "platform", "random",
    "shutil", "smtplib", "statistics", "subprocess", "tarfile", "textwrap", "threading", "typing", "uuid",
)  # fmt: skip


def sentences():
    """
    Return the sentences in a fixed order. The same Python version gives the same ones.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = {}
    for path in (folder / f"{name}.py" for name in MODULES):
        if path.is_file():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                    for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", ast.get_docstring(node) or ""):
                        line = " ".join(part.split())
                        if len(line.split()) >= 4:
                            found[line] = None
    return list(found)
