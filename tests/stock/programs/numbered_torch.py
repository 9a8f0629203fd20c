"""
A training that keeps a file for each save, model_000005.pt, and goes on from the one with the largest number.
"""

import os
import re
import sys

from layouts import Tensor, load, save, step_time, wait_for_the_test

out, steps = sys.argv[1], int(sys.argv[2])
os.makedirs(out, exist_ok=True)
weights, step = [2.0] * 4096, 0
numbers = [int(found[1]) for name in os.listdir(out) if (found := re.fullmatch(r"model_(\d+)\.pt", name))]
if numbers:
    step = max(numbers)
    weights = load(f"{out}/model_{step:06d}.pt")["model"]["w"]
    print(f"resumed from step {step}", flush=True)
while step < steps:
    step_time()
    step += 1
    weights = [one * 0.99 for one in weights]
    print(f"step {step:05d}/{steps:05d} | loss: {weights[0]:.6f} | dt: 200.00ms | tok/sec: 1,000", flush=True)
    if step % 5 == 0:
        save(f"{out}/model_{step:06d}.pt", {"model": {"w": Tensor(weights)}, "step": step})
wait_for_the_test()
