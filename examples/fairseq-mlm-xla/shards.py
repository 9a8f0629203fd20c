"""
Preprocess the training text in parts: data-bin/000, data-bin/001 and so on, which share one dictionary.

fairseq takes one part for an epoch and saves after it. It is called here as the command fairseq-preprocess
is, once for each part, but in one process: importing it takes longer than the work.
"""

import argparse
import shutil
import sys
from pathlib import Path

import launch  # noqa: F401 (lets fairseq be imported)
from fairseq_cli import preprocess


def run(*words):
    """
    Be the command fairseq-preprocess. Without --only-source the files get names that masked_lm does not find.
    """
    sys.argv = ["fairseq-preprocess", "--only-source", "--tokenizer", "space", *map(str, words)]
    preprocess.cli_main()


def main():
    """
    Make the dictionary of the whole text, then the parts.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shards", type=int, default=8, help="parts, each one epoch long")
    parser.add_argument("--words", type=int, default=2000, help="most words of the dictionary")
    parser.add_argument("--text", type=Path, default=Path("text"), help="has train.txt and valid.txt")
    parser.add_argument("--out", type=Path, default=Path("data-bin"), help="the folder to make")
    args = parser.parse_args()
    lines = (args.text / "train.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    if args.out.exists():
        shutil.rmtree(args.out)
    run(
        "--trainpref",
        args.text / "train.txt",
        "--destdir",
        args.out,
        "--nwordssrc",
        args.words,
        "--dict-only",
    )
    for number in range(args.shards):
        part = args.text / f"part-{number:03d}"
        part.write_text("".join(lines[number :: args.shards]), encoding="utf-8")
        run(
            "--srcdict", args.out / "dict.txt", "--trainpref", part, "--validpref", args.text / "valid.txt",
            "--destdir", args.out / f"{number:03d}",
        )  # fmt: skip


if __name__ == "__main__":
    main()
