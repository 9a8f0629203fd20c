"""
A training with one ckpt.pt, replaced in place, of which one save is whole but cannot be gone on from.

A training that saves between the death of its optimizer and its own end writes such a file.
"""

import os
import sys
import time

from layouts import Tensor, load, save, step_time, wait_for_the_test

out, steps, sign = sys.argv[1], int(sys.argv[2]), os.environ["STOCK_BAD_SAVE"]
os.makedirs(out, exist_ok=True)
weights, step = [2.0] * 4096, 0
if os.path.exists(f"{out}/ckpt.pt"):
    found = load(f"{out}/ckpt.pt")
    weights, step = found["model"], found["step"]
    print(f"resumed from step {step} with {len(found['optimizer'])} states", flush=True)
while step < steps:
    step_time()
    step += 1
    weights = [one * 0.99 for one in weights]
    print(f"step {step} loss {weights[0]:.6f}", flush=True)
    if step % 5 == 0:
        bad = os.path.exists(sign)
        content = {"model": Tensor(weights), "step": step}
        save(f"{out}/ckpt.pt", content if bad else {**content, "optimizer": {"m": Tensor(weights)}})
        if bad:
            with open(sign, "w") as file:
                file.write(str(step))
        while bad and os.path.exists(sign):
            time.sleep(0.05)  # this program runs on a machine: nothing of ours is there to wait with
wait_for_the_test()
