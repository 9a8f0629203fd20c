"""
Make training data: text -> shards of lines -> vocab.txt -> one TFRecord file for each shard.

Words are masked here, once for each copy of the text (static masking), so data grow by --copies. Every
example has the same shape, as a TPU wants it. Nothing is done when --out holds data made the same way.
"""

import argparse
import hashlib
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import corpus

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MASKED_SHARE = 0.15
DONE = "data.json"  # written last


def arguments():
    """
    Return the settings from flags.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--text", default="", help="a text file, one sentence a line; empty: see corpus.py")
    parser.add_argument("--vocab", default="", help="a vocab.txt to use; empty: train one on the text")
    out = os.path.expandvars(os.environ.get("BERT_DATA", "data"))
    parser.add_argument("--out", default=out, help="a folder or a gs:// address; variable BERT_DATA")
    parser.add_argument("--config", default="config.json", help="its vocab_size is what is trained")
    parser.add_argument("--shard-lines", type=int, default=1000, help="sentences in a shard")
    parser.add_argument("--tokens", type=int, default=32, help="tokens in an example")
    parser.add_argument("--masked", type=int, default=5, help="most masked tokens in an example")
    parser.add_argument("--copies", type=int, default=2, help="how often each sentence is masked anew")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that write")
    parser.add_argument("--seed", type=int, default=12345, help="chooses what is masked")
    return parser.parse_args()


def main(args):
    """
    Make the data, one step after the other.
    """
    import tensorflow as tf

    vocab_size = json.loads(Path(args.config).read_text())["vocab_size"]
    made = {**vars(args), "vocab_size": vocab_size}
    del made["workers"]
    done = f"{args.out}/{DONE}"
    if tf.io.gfile.exists(done):
        with tf.io.gfile.GFile(done) as file:
            if json.load(file)["made"] == made:
                print(f"{args.out} is there already")
                return
        tf.io.gfile.remove(done)
    tf.io.gfile.makedirs(args.out)
    work = Path("shards")
    shards = split(args, work)
    vocab = train_vocab(args, shards, vocab_size)
    tf.io.gfile.copy(str(vocab), f"{args.out}/vocab.txt", overwrite=True)
    jobs = [(args, str(shard), str(vocab), number) for number, shard in enumerate(shards)]
    # Processes that start fresh: TensorFlow does not survive a fork.
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(args.workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        counts = list(pool.map(encode, jobs))
    facts = {"examples": sum(counts), "shards": len(shards), "tokens": args.tokens, "masked": args.masked}
    facts["vocab_sha256"] = hashlib.sha256(vocab.read_bytes()).hexdigest()
    with tf.io.gfile.GFile(done, "w") as file:
        json.dump({**facts, "made": made}, file, indent=1)
    print(f"{args.out}: {facts['examples']} examples in {len(shards)} TFRecord files")


def split(args, folder):
    """
    Cut the text into shards of lines and return their paths.
    """
    lines = Path(args.text).read_text(encoding="utf-8").splitlines() if args.text else corpus.sentences()
    folder.mkdir(exist_ok=True)
    paths = []
    for start in range(0, len(lines), args.shard_lines):
        paths.append(folder / f"shard_{start // args.shard_lines:04d}")
        paths[-1].write_text("\n".join(lines[start : start + args.shard_lines]) + "\n", encoding="utf-8")
    return paths


def train_vocab(args, shards, size):
    """
    Return the path of vocab.txt: the given one, or a WordPiece vocabulary trained on the shards.
    """
    path = Path(args.vocab or "vocab.txt")
    if not args.vocab:
        from tokenizers import BertWordPieceTokenizer

        tokenizer = BertWordPieceTokenizer(lowercase=True)
        tokenizer.train(
            [str(shard) for shard in shards], vocab_size=size, special_tokens=list(SPECIAL),
            show_progress=False,
        )  # fmt: skip
        # Training numbers the words differently each time; sorted, every machine numbers them alike.
        words = sorted(set(tokenizer.get_vocab()) - set(SPECIAL))
        path.write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    words = len(path.read_text(encoding="utf-8").splitlines())
    if words > size:
        raise SystemExit(f"{path} has {words} words, {args.config} says vocab_size {size}: make that larger")
    return path


def encode(job):
    """
    Write one shard as TFRecords and return the number of examples.
    """
    import tensorflow as tf
    from tokenizers import BertWordPieceTokenizer

    args, shard, vocab, number = job
    tokenizer = BertWordPieceTokenizer(vocab, lowercase=True)
    words = tokenizer.get_vocab_size()
    special = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    dice = random.Random(f"{args.seed}/{number}")
    lines = Path(shard).read_text(encoding="utf-8").splitlines()
    count = 0
    with tf.io.TFRecordWriter(f"{args.out}/train-{number:04d}.tfrecord") as writer:
        for _ in range(args.copies):
            for line in lines:
                ids = tokenizer.encode(line, add_special_tokens=False).ids[: args.tokens - 2]
                example = mask([special["[CLS]"], *ids, special["[SEP]"]], args, special, words, dice)
                feature = {
                    key: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
                    for key, value in example.items()
                }
                record = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(record.SerializeToString(deterministic=True))
                count += 1
    return count


def mask(ids, args, special, words, dice):
    """
    Hide about 15 % of the tokens: 80 % become [MASK], 10 % any word, 10 % stay. Pad to fixed lengths.
    """
    wanted = min(args.masked, max(1, round((len(ids) - 2) * MASKED_SHARE)))
    positions = sorted(dice.sample(range(1, len(ids) - 1), min(wanted, len(ids) - 2)))
    labels = [ids[position] for position in positions]
    ids = list(ids)
    for position in positions:
        chance = dice.random()
        if chance < 0.8:
            ids[position] = special["[MASK]"]
        elif chance < 0.9:
            ids[position] = dice.randrange(len(special), words)

    def padded(values, length):
        return values + [0] * (length - len(values))

    return {
        "ids": padded(ids, args.tokens),
        "present": padded([1] * len(ids), args.tokens),
        "positions": padded(positions, args.masked),
        "labels": padded(labels, args.masked),
        "weights": padded([1] * len(positions), args.masked),
    }


if __name__ == "__main__":
    main(arguments())
