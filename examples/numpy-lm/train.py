"""
Train a small character-level language model with numpy, so that it can be killed at any moment.

Every flag has a variable of the same name: --step-seconds is NUMPY_LM_STEP_SECONDS.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

# One thread: the machines of a rehearsal share their cores, and sums come out the same each time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import checkpoints
import corpus
import model
from gang import Gang, GangError
from saving import Saving

STOPPED = 128 + signal.SIGTERM
GO_ON, SAVE, STOP = 0, 1, 2


def arguments():
    """
    Return the settings from flags, then variables, then defaults.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )

    def add(name, default, text):
        variable = "NUMPY_LM_" + name.upper().replace("-", "_")
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", type=type(default), default=value, help=text)

    add("steps", 400, "train until this step")
    add("save-every", 25, "steps between two checkpoints, unless tpuctl tells a time")
    add("log-every", 10, "steps between two log lines")
    add("step-seconds", 0.05, "shortest time of a step, to let people watch")
    add("batch", 64, "windows in a step, over all workers")
    add("context", 16, "characters in a window")
    add("embed", 24, "size of a character's vector")
    add("hidden", 128, "size of the hidden layer")
    add("rate", 0.003, "learning rate")
    add("seed", 0, "seed of parameters and data order")
    add("keep", 2, "complete checkpoints kept on this machine")
    add("port", 8477, "port of worker 0")
    add("join-seconds", 60.0, "how long to wait for the other workers at the start")
    add("peer-seconds", 20.0, "how long to wait for the other workers in a step")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "folder of the checkpoints")
    return parser.parse_args()


def train(args):
    """
    Train and return the exit status. SIGTERM is a wish to stop after the current step.
    """
    stop = []
    worker = int(os.environ.get("TPUCTL_WORKER_ID") or 0)
    workers = int(os.environ.get("TPUCTL_WORKERS") or 1)
    hosts = [host for host in os.environ.get("TPUCTL_WORKER_HOSTS", "").split(",") if host]
    if args.batch % workers:
        sys.exit(f"--batch {args.batch} cannot be shared equally by {workers} workers")
    text = corpus.load()
    step, state = checkpoints.load(args.out)
    print(f"resumed from step {step}" if step else "starting from step 0", flush=True)
    state = state or model.initial_state(args.seed, args.context, args.embed, args.hidden)
    report(step, None, None)
    saving = Saving(args.save_every)
    try:
        gang = Gang(
            worker,
            workers,
            hosts,
            port=args.port,
            join_seconds=args.join_seconds,
            step_seconds=args.peer_seconds,
        )
        # From here on there is something to save. Before, SIGTERM ends us at once, as is its default.
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
        while step < args.steps:
            began = time.monotonic()
            share = corpus.batch(
                text,
                step,
                seed=args.seed,
                size=args.batch,
                context=args.context,
                worker=worker,
                workers=workers,
            )
            wish = STOP if stop else SAVE if saving.due(step + 1) else GO_ON
            loss, grads, wish = gang.average(step, *model.gradients(state, *share), wish)
            step += 1
            model.adam(state, grads, step, rate=args.rate)
            report(step, loss, saving.seconds)
            if step % args.log_every == 0 or step == args.steps:
                print(f"step {step} loss {loss:.6f}", flush=True)
            if wish != GO_ON or step == args.steps:
                save_began = time.monotonic()
                checkpoints.save(args.out, step, state, args.keep)
                saving.done(save_began)
            if wish == STOP and step < args.steps:
                print(f"asked to stop: saved step {step}", flush=True)
                return STOPPED
            time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
    except GangError as error:
        print(f"error: {error}", flush=True)
        # The state is that of a finished step, and worth keeping when this machine is about to go.
        if stop and step:
            checkpoints.save(args.out, step, state, args.keep)
        return STOPPED if stop else 1
    return 0


def report(step, loss, save_pause):
    """
    Tell the agent, if there is one, how far we are and for how long the last save stopped us.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        news = {"step": step, "loss": loss, "save_pause": save_pause}
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({key: value for key, value in news.items() if value is not None}))
        temporary.replace(name)


def main():
    """
    Train, and leave with the exit status.
    """
    sys.exit(train(arguments()))


if __name__ == "__main__":
    main()
