"""
A training in the manner of the small GPT repositories: flags --key=value, one ckpt.pt, replaced in place.

It starts anew unless it is told `--init_from=resume`, and then wants its file to be there.
"""

import os
import sys

from layouts import Tensor, load, save, step_time, wait_for_the_test

config = {"out_dir": "out", "init_from": "scratch", "max_iters": 100, "eval_interval": 5, "log_interval": 1}
for word in sys.argv[1:]:
    key, _, value = word.removeprefix("--").partition("=")
    config[key] = type(config[key])(value)
os.makedirs(config["out_dir"], exist_ok=True)
path = os.path.join(config["out_dir"], "ckpt.pt")
iter_num, weights, best = 0, [1.0] * 4096, 1e9
if config["init_from"] == "resume":
    print(f"Resuming training from {config['out_dir']}")
    found = load(path)
    iter_num, weights, best = found["iter_num"], found["model"]["wte.weight"], found["best_val_loss"]
while True:
    loss = weights[0] * 4
    if iter_num % config["eval_interval"] == 0:
        print(f"step {iter_num}: train loss {loss:.4f}, val loss {loss + 0.01:.4f}")
        if loss < best and iter_num > 0:
            best = loss
            content = {
                "model": {"wte.weight": Tensor(weights)},
                "optimizer": {"state": {0: {"exp_avg": Tensor(weights)}}},
                "model_args": {"n_layer": 1}, "iter_num": iter_num, "best_val_loss": best, "config": config,
            }  # fmt: skip
            print(f"saving checkpoint to {config['out_dir']}")
            save(path, content)
    if iter_num >= config["max_iters"]:
        break
    step_time()
    weights = [one * 0.99 for one in weights]
    if iter_num % config["log_interval"] == 0:
        print(f"iter {iter_num}: loss {loss:.4f}, time 200.00ms, mfu -100.00%")
    iter_num += 1
wait_for_the_test()
