"""
Train two tokenizers on data/corpus.txt: WordPiece (for BERT) as step 1, byte-level BPE (for GPT-2) as step 2.

A folder for each step, with all that is made so far and the marker COMPLETE last. Every flag has a variable
of the same name: --vocab-size is TOKENIZER_VOCAB_SIZE.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

# One thread: many threads gain nothing on a small text, and machines of a rehearsal share their cores.
os.environ.setdefault("RAYON_NUM_THREADS", "1")

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = {"clean_text": True, "strip_accents": False, "lowercase": False}
END = "<|endoftext|>"


def arguments():
    """
    Return the settings from flags, then variables, then defaults.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )

    def add(name, default, text):
        variable = "TOKENIZER_" + name.upper().replace("-", "_")
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", type=type(default), default=value, help=text)

    add("vocab-size", 2000, "tokens of each tokenizer")
    add("alphabet", 1000, "single characters that WordPiece may keep; more for Korean or Japanese")
    add("step-seconds", 0.0, "shortest time of a step, to let people watch")
    add("data", "data/corpus.txt", "the cleaned text")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "folder of the steps")
    return parser.parse_args()


def wordpiece(args, folder):
    """
    Write vocab.txt and tokenizer.json. Case and accents are kept: strip_accents would break other scripts.

    One training alone numbers the letters in another order each time, and their numbers decide between pairs
    that are equally frequent. So the first training finds the letters, and the second gets them in order.
    """
    letters = sorted(set(trained(args, 0, SPECIAL)) - set(SPECIAL))
    vocab = trained(args, args.vocab_size, [*SPECIAL, *letters])
    write(BertWordPieceTokenizer(vocab, **BERT), folder)


def trained(args, size, first):
    """
    Return the number of each word; those in *first* get the first numbers.
    """
    tokenizer = BertWordPieceTokenizer(**BERT)
    tokenizer.train(
        [args.data], vocab_size=size, limit_alphabet=args.alphabet, special_tokens=first, show_progress=False
    )
    return tokenizer.get_vocab()


def bpe(args, folder):
    """
    Write vocab.json, merges.txt and tokenizer.json. Any text can be encoded: the alphabet is all bytes.
    """
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([args.data], vocab_size=args.vocab_size, special_tokens=[END], show_progress=False)
    write(tokenizer, folder)


def write(tokenizer, folder):
    """
    Write the tokenizer in the forms that transformers reads.
    """
    folder.mkdir(parents=True)
    tokenizer.save_model(str(folder))
    tokenizer.save(str(folder / "tokenizer.json"))


STEPS = (("wordpiece", wordpiece), ("bpe", bpe))


def finished(out):
    """
    Return the last step whose marker is there, 0 for none.
    """
    return max(
        (int(path.parent.name.split("-")[-1]) for path in out.glob("tokenizers-*/COMPLETE")), default=0
    )


def train(args):
    """
    Do the steps that are missing. A kill costs the step it hits, no more.
    """
    out = Path(args.out)
    done = finished(out)
    print(f"resumed from step {done}" if done else "starting from step 0", flush=True)
    report(done)
    for step, (name, make) in list(enumerate(STEPS, 1))[done:]:
        began = time.monotonic()
        folder = out / f"tokenizers-{step}"
        shutil.rmtree(folder, ignore_errors=True)  # half of a step that was killed
        if step > 1:
            shutil.copytree(out / f"tokenizers-{step - 1}", folder, ignore=shutil.ignore_patterns("COMPLETE"))
        make(args, folder / name)
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
        (folder / "COMPLETE").write_text(f"{step}\n")
        print(f"step {step}: {name} with {args.vocab_size} tokens in {folder / name}", flush=True)
        report(step)


def report(step):
    """
    Tell the agent how far we are, if there is one.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({"step": step}))
        temporary.replace(name)


if __name__ == "__main__":
    train(arguments())
