"""
Write the training text: sentences from the documentation inside Python's own standard library.

One sentence a line, its words parted by spaces, which is the form fairseq-preprocess reads. Every machine
has this text, so a replaced one makes it again. For your own text, write train.txt and valid.txt instead.
"""

import ast
import re
import sys
import sysconfig
from pathlib import Path

MODULES = (
    "argparse", "calendar", "configparser", "csv", "datetime", "decimal", "difflib", "doctest", "ftplib",
    "inspect", "ipaddress", "locale", "mailbox", "optparse", "pathlib", "pickle", "platform", "random",
    "shutil", "smtplib", "statistics", "subprocess", "tarfile", "textwrap", "threading", "typing", "uuid",
)  # fmt: skip
LONGEST = 30  # words; fairseq adds a begin and an end, and train.sh allows 32 tokens
HELD_OUT = 20  # every 20th sentence is for validation


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
                        words = re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", part.lower())
                        if 4 <= len(words) <= LONGEST:
                            found[" ".join(words)] = None
    return list(found)


def main(folder):
    """
    Write `train.txt` and `valid.txt` to *folder*.
    """
    text = sentences()
    folder.mkdir(parents=True, exist_ok=True)
    held = text[::HELD_OUT]
    kept = [line for number, line in enumerate(text) if number % HELD_OUT]
    for name, lines in (("train.txt", kept), ("valid.txt", held)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{folder / name}: {len(lines)} sentences")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "text"))
