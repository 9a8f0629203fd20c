"""
Make the text: one cleaned file, ./data/corpus.txt.

The text is Python's own standard library. Put your own files into ./text, and they are taken instead.
Lines are trimmed, what cannot be printed is removed, and a line that was there before is left out.
"""

import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
MODULES = (
    "argparse", "ast", "calendar", "configparser", "csv", "datetime", "decimal", "difflib", "doctest",
    "ftplib", "inspect", "ipaddress", "locale", "mailbox", "optparse", "pathlib", "pickle", "platform",
    "shutil", "smtplib", "statistics", "subprocess", "tarfile", "textwrap", "threading", "typing", "uuid",
)  # fmt: skip


def documents():
    """
    Return the files to learn from, in a fixed order.
    """
    own = sorted(path for path in (HERE / "text").glob("**/*") if path.is_file())
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    return own or [path for name in MODULES if (path := stdlib / f"{name}.py").is_file()]


def cleaned(files):
    """
    Yield each line once, without spaces around it and without what cannot be printed.
    """
    seen = set()
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            text = "".join(c for c in line.expandtabs(1).strip() if c.isprintable())
            if text and text not in seen:
                seen.add(text)
                yield text


def main():
    """
    Write the file.
    """
    out = HERE / "data/corpus.txt"
    out.parent.mkdir(exist_ok=True)
    lines = list(cleaned(documents()))
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"data: {len(lines)} lines, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
