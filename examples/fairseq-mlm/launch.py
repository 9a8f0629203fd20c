"""
Run a command of fairseq 0.12.2 on today's Python and torch, with fairseq's own files left alone.

    python launch.py preprocess --only-source ...     is fairseq-preprocess
    python launch.py train data-bin ...               is fairseq-train

Training gets three things that fairseq lacks: a torn checkpoint_last.pt is repaired before the start, SIGTERM
saves and leaves with 143, and the step goes to $TPUCTL_PROGRESS_FILE.
"""

import dataclasses
import importlib
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

STOPPED = 128 + signal.SIGTERM
OLD_CODE = ("fairseq", "fairseq_cli", "hydra")

# torch loads tensors only, unless told otherwise; fairseq's checkpoints hold its settings too. Load none
# that somebody else made.
os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")

plain_dataclass = dataclasses.dataclass


def lenient_dataclass(cls=None, /, **options):
    """
    Be `dataclasses.dataclass`, and let old code use a dataclass object as a default.

    Since Python 3.11 a default that has no hash is refused; an unsafe hash satisfies the check.
    """

    def decorate(target):
        old = target.__module__.partition(".")[0] in OLD_CODE
        extra = {"unsafe_hash": True} if old and not options.get("frozen") else {}
        return plain_dataclass(target, **{**extra, **options})

    return decorate if cls is None else decorate(cls)


# torch reads the defaults off the function. At the top of the file, so that spawned processes have it too.
lenient_dataclass.__kwdefaults__ = dict(plain_dataclass.__kwdefaults__ or {})
dataclasses.dataclass = lenient_dataclass


class Stop:
    """
    Remember that SIGTERM came. The save happens between two updates, never inside one.
    """

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number, _frame):
        self.asked = True


def report(step, loss):
    """
    Tell the agent the step, if there is an agent.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({"step": step, "loss": loss}))
        temporary.replace(name)


def watch(stop):
    """
    Stand before two functions of fairseq: one it calls for each epoch, one after each update.
    """
    from fairseq.logging import metrics
    from fairseq_cli import train

    after_update, epoch = train.validate_and_save, train.train

    def one_epoch(cfg, trainer, task, epoch_itr):
        # fairseq looks at --max-update only after an update, and would add one to a finished training.
        if trainer.get_num_updates() >= (cfg.optimization.max_update or math.inf):
            report(trainer.get_num_updates(), None)
            return [None], True
        return epoch(cfg, trainer, task, epoch_itr)

    def validate_and_save(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        step = trainer.get_num_updates()
        if stop.asked:
            # fairseq has a time limit: let it be over. There is no time to validate: the machine is leaving.
            cfg.optimization.stop_time_hours = 1e-9
            cfg.dataset.disable_validation = True
        if stop.asked or step >= (cfg.optimization.max_update or math.inf):
            # The last save gets a name too; by itself fairseq writes only checkpoint_last.pt here.
            cfg.checkpoint.save_interval_updates = max(step, 1)
            cfg.checkpoint.no_epoch_checkpoints = False
            cfg.checkpoint.save_interval = 1
        result = after_update(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        report(step, metrics.get_smoothed_values("train").get("loss"))
        time.sleep(float(os.environ.get("FAIRSEQ_STEP_SECONDS") or 0))
        return result

    train.validate_and_save, train.train = validate_and_save, one_epoch


def save_folder(words):
    """
    Return the value of --save-dir, in both ways to write it.
    """
    for number, word in enumerate(words):
        if word == "--save-dir" and number + 1 < len(words):
            return Path(words[number + 1])
        if word.startswith("--save-dir="):
            return Path(word.partition("=")[2])
    return Path("checkpoints")


def main():
    """
    Run the command named first, with the remaining words as its flags.
    """
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    command = sys.argv.pop(1)
    stop = None
    if command == "train":
        import checkpoints

        # First of all: a signal during the long import must not be lost.
        stop = Stop()
        checkpoints.repair(save_folder(sys.argv))
        watch(stop)
    importlib.import_module(f"fairseq_cli.{command}").cli_main()
    if stop and stop.asked:
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
