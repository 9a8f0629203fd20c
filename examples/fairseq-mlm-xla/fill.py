"""
Ask the trained model for a hidden word:  python fill.py "return the <mask> of the list"
"""

import logging
import os
import sys
from pathlib import Path

import launch  # noqa: F401 (lets fairseq be imported)
from fairseq.models.roberta import RobertaModel


class Words:
    """
    Stand for the subword tool that fairseq asks for: here a token is a word.
    """

    def encode(self, text):
        return text

    def decode(self, tokens):
        return f" {tokens}"


def main(text):
    """
    Print the five likeliest words, with their probability.
    """
    logging.disable(logging.INFO)
    folder = Path(os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints")).resolve()
    data = Path("data-bin").resolve()
    model = RobertaModel.from_pretrained(str(folder), "checkpoint_best.pt", str(data), bpe=None)
    model.bpe = Words()
    model.eval()
    for filled, share, word in model.fill_mask(text.lower(), topk=5):
        print(f"{share:.3f} {word.strip()}: {' '.join(filled.split())}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "return the <mask> of the list .")
