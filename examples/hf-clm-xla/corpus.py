"""
Make the data: text, tokenizer and one flat file of token numbers, all in ./data.

The text is Python's own standard library. Put your own files into ./text, and they are taken instead.
A folder ./tokenizer with vocab.json and merges.txt (made by the tokenizer recipe) is used as it is;
without it a byte-level BPE is trained here.
"""

import argparse
import hashlib
import json
import sysconfig
from pathlib import Path

import numpy as np
from tokenizers import ByteLevelBPETokenizer

HERE = Path(__file__).parent
END = "<|endoftext|>"
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


def tokenizer(files, size):
    """
    Return the tokenizer of ./tokenizer, or one trained on *files* with *size* tokens.
    """
    made = HERE / "tokenizer"
    if (made / "vocab.json").is_file() and (made / "merges.txt").is_file():
        print(f"tokenizer: {made}")
        return ByteLevelBPETokenizer(str(made / "vocab.json"), str(made / "merges.txt"))
    fresh = ByteLevelBPETokenizer()
    fresh.train([str(path) for path in files], vocab_size=size, special_tokens=[END], show_progress=False)
    return fresh


def main():
    """
    Write data/tokenizer.json, data/tokens.npy and, last, data/data.json.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocab-size", type=int, default=2000, help="size of a BPE that is trained here")
    parser.add_argument("--out", type=Path, default=HERE / "data")
    args = parser.parse_args()
    files = documents()
    bpe = tokenizer(files, args.vocab_size)
    end = bpe.token_to_id(END)
    if end is None:
        raise SystemExit(f"error: the tokenizer has no token {END}, which stands between two documents")
    if bpe.get_vocab_size() > 1 << 16:
        raise SystemExit("error: more than 65536 tokens do not fit into two bytes; change np.uint16 here")
    numbers = [
        np.array([*bpe.encode(path.read_text(encoding="utf-8")).ids, end], np.uint16) for path in files
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    bpe.save(str(args.out / "tokenizer.json"))
    np.save(args.out / "tokens.npy", np.concatenate(numbers))
    content = (args.out / "tokens.npy").read_bytes() + (args.out / "tokenizer.json").read_bytes()
    facts = {"vocab_size": bpe.get_vocab_size(), "end": end, "sha256": hashlib.sha256(content).hexdigest()}
    (args.out / "data.json").write_text(json.dumps(facts))
    print(f"data: {len(files)} files, {sum(map(len, numbers))} tokens of {facts['vocab_size']}")


if __name__ == "__main__":
    main()
