"""
Fit a small network to a noisy curve with plain numpy: a training script as anybody writes it, for a sweep.

It knows nothing of tpuctl: flags, a folder for checkpoints, lines with step and loss, and metrics.json at the end.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

# One thread: the machines of a rehearsal share their cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np


def arguments():
    """Return the flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument(
        "--pause", type=float, default=0.08, help="seconds between two steps, to let people watch"
    )
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    return parser.parse_args()


def save(out, step, weights):
    """Write a checkpoint; the file COMPLETE comes last, so that a torn one is not used."""
    folder = out / f"step-{step}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    np.savez(folder / "weights.npz", **weights)
    (folder / "COMPLETE").touch()


def newest(out):
    """Return step and weights of the newest complete checkpoint, or 0 and None."""
    steps = sorted(int(path.parent.name.partition("-")[2]) for path in out.glob("step-*/COMPLETE"))
    if not steps:
        return 0, None
    with np.load(out / f"step-{steps[-1]}" / "weights.npz") as found:
        return steps[-1], dict(found)


def gradients(weights, x, y):
    """Return loss and gradients of a network with one hidden layer."""
    hidden = np.tanh(x @ weights["a"] + weights["b"])
    error = hidden @ weights["c"] - y
    back = error @ weights["c"].T * (1 - hidden**2)
    found = {"a": x.T @ back, "b": back.sum(0), "c": hidden.T @ error}
    return float((error**2).mean()), {name: one * 2 / len(x) for name, one in found.items()}


def main():
    """Train, from the newest checkpoint if there is one."""
    args = arguments()
    data = np.random.default_rng(1)
    x = data.uniform(-3, 3, (256, 1))
    y = np.sin(2 * x) + data.normal(0, 0.1, x.shape)
    step, weights = newest(args.out)
    if weights is None:
        start = np.random.default_rng(args.seed)
        weights = {"a": start.normal(0, 1, (1, args.width)), "b": start.normal(0, 1, args.width),
                   "c": start.normal(0, 1 / args.width**0.5, (args.width, 1))}  # fmt: skip
    print(f"starts at step {step}", flush=True)
    while step < args.steps:
        loss, found = gradients(weights, x, y)
        for name, gradient in found.items():
            weights[name] -= args.lr * np.clip(gradient, -1, 1)
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss:.5f}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            save(args.out, step, weights)
        time.sleep(args.pause)
    final, _ = gradients(weights, x, y)
    Path("metrics.json").write_text(json.dumps({"final_loss": final, "weights": 3 * args.width}))


if __name__ == "__main__":
    main()
