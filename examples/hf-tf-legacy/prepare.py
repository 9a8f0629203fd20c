"""
Make the data: sentences of fixed length as token numbers, and the vocabulary, all in ./data.

Nothing is done when they are there. Your own text: --text FILE, one sentence a line.
"""

import argparse
import hashlib
import json
from pathlib import Path

import corpus
import numpy as np
from tokenizers import BertWordPieceTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary(lines, size, path):
    """
    Write a WordPiece vocabulary of at most *size* words to *path*.
    """
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(lines, vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
    # Training numbers the words differently each time; sorted, every machine numbers them alike.
    words = sorted(set(tokenizer.get_vocab()) - set(SPECIAL))
    path.write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")


def main():
    """
    Write vocab.txt, tokens.npy and, last, data.json.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--text", default="", help="a text file, one sentence a line; empty: see corpus.py")
    parser.add_argument("--out", type=Path, default=Path("data"))
    parser.add_argument("--vocab-size", type=int, default=2000, help="most words of the vocabulary")
    parser.add_argument("--tokens", type=int, default=32, help="length of every example: longer ones are cut")
    args = parser.parse_args()
    done = args.out / "data.json"
    if done.exists():
        print(f"{args.out} is there already")
        return
    lines = Path(args.text).read_text(encoding="utf-8").splitlines() if args.text else corpus.sentences()
    args.out.mkdir(parents=True, exist_ok=True)
    vocabulary(lines, args.vocab_size, args.out / "vocab.txt")
    # Every batch has one shape. With lengths that vary, XLA would compile a program for each of them.
    tokenizer = BertWordPieceTokenizer(str(args.out / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(args.tokens)
    tokenizer.enable_padding(length=args.tokens)
    tokens = np.array([encoded.ids for encoded in tokenizer.encode_batch(lines)], np.int32)
    np.save(args.out / "tokens.npy", tokens)
    digest = hashlib.sha256((args.out / "vocab.txt").read_bytes()).hexdigest()
    facts = {"words": tokenizer.get_vocab_size(), "tokens": args.tokens, "vocab_sha256": digest}
    done.write_text(json.dumps(facts))
    print(f"{args.out}: {len(tokens)} sentences of {args.tokens} tokens, {facts['words']} words")


if __name__ == "__main__":
    main()
