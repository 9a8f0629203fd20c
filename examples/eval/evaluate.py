"""
Measure how well a model foretells each file of a text, in bits for a byte: a job without steps.

The results go out in shards. A shard that is there already is not computed again, so a job whose machine was
taken away goes on with the first one that is missing. `summary.json` comes last.
"""

import argparse
import functools
import json
import os
import sysconfig
import time
from pathlib import Path

import fsspec
import jax
import jax.numpy as jnp
import numpy as np


def arguments():
    """
    Return the settings.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    folder = os.environ.get("TPUCTL_CHECKPOINT_DIR", "outputs")
    parser.add_argument("--shard", type=int, default=10, help="files in a shard")
    parser.add_argument("--shard-seconds", type=float, default=0.0, help="shortest time of a shard")
    parser.add_argument("--out", default=folder, help="folder of the results, also gs://")
    return parser.parse_args()


def model(files):
    """
    Return the model: how likely each byte is after each other one. Load your own here.
    """
    counts = np.ones((256, 256))
    for file in files:
        text = np.frombuffer(file.read_bytes(), np.uint8)
        np.add.at(counts, (text[:-1], text[1:]), 1)
    return jnp.log2(jnp.asarray(counts / counts.sum(axis=1, keepdims=True), jnp.float32))


@functools.partial(jax.jit, static_argnames="size")
def bits(table, text, length, size):
    """
    Return the bits for a byte of the first *length* bytes; texts of one *size* share one compiled program.
    """
    costs = -table[text[:-1], text[1:]]
    return jnp.where(jnp.arange(size - 1) < length - 1, costs, 0).sum() / (length - 1)


def score(table, file):
    """
    Return the line of one file.
    """
    text = np.frombuffer(file.read_bytes(), np.uint8)
    size = 1 << max(10, int(np.ceil(np.log2(len(text)))))  # few sizes, or XLA compiles for each file
    padded = np.zeros(size, np.uint8)
    padded[: len(text)] = text
    return {"file": file.name, "bytes": len(text), "bits": float(bits(table, padded, len(text), size))}


def main():
    """
    Write the shards that are missing, and the summary.
    """
    args = arguments()
    files = [
        path for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) if path.stat().st_size > 1
    ]
    table = model(files[::2])
    asked = files[1::2]
    system, folder = fsspec.core.url_to_fs(args.out)
    system.makedirs(folder, exist_ok=True)
    lines = []
    for number, start in enumerate(range(0, len(asked), args.shard)):
        began, path = time.monotonic(), f"{folder}/scores-{number:05d}.jsonl"
        if system.exists(path):
            lines += [json.loads(line) for line in system.cat_file(path).decode().splitlines()]
            continue
        found = [score(table, file) for file in asked[start : start + args.shard]]
        system.pipe_file(path, "".join(json.dumps(line) + "\n" for line in found).encode())
        lines += found
        print(f"shard {number}: {len(lines)} of {len(asked)} files", flush=True)
        time.sleep(max(0.0, args.shard_seconds - (time.monotonic() - began)))
    mean = sum(line["bits"] * line["bytes"] for line in lines) / sum(line["bytes"] for line in lines)
    summary = {"files": len(lines), "bits": round(mean, 6)}
    system.pipe_file(f"{folder}/summary.json", json.dumps(summary).encode())
    print(f"done: {summary}", flush=True)


if __name__ == "__main__":
    main()
