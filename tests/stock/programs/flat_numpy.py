"""
A first script of one's own: `latest.npz` again and again in place, `final.npz` at the end.
"""

import os
import sys

from layouts import loadz, savez, step_time, wait_for_the_test

out, steps = sys.argv[1], int(sys.argv[2])
os.makedirs(out, exist_ok=True)
weights, step = [0.5] * 4096, 0
if os.path.exists(f"{out}/latest.npz"):
    found = loadz(f"{out}/latest.npz")
    weights, step = found["weights"], int(found["step"][0])
    print(f"resumed from step {step}", flush=True)
while step < steps:
    step_time()
    step += 1
    weights = [one * 0.99 for one in weights]
    print(f"step {step} loss {weights[0]:.6f}", flush=True)
    if step % 5 == 0:
        savez(f"{out}/latest.npz", weights=weights, step=[float(step)])
wait_for_the_test()
savez(f"{out}/final.npz", weights=weights)
