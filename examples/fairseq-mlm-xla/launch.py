"""
Run a command of fairseq 0.12.2 with --tpu on today's Python, torch and torch_xla, its own files left alone.

    python launch.py preprocess --only-source ...     is fairseq-preprocess
    python launch.py train data-bin --tpu ...         is fairseq-train

Training gets what fairseq lacks: names that torch_xla has dropped since, a repair of a torn
checkpoint_last.pt before the start, and the step in $TPUCTL_PROGRESS_FILE. SIGTERM ends it without a save:
see README.md.
"""

import dataclasses
import importlib
import json
import logging
import math
import os
import sys
import time
from pathlib import Path

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


def choose_device():
    """
    Use the TPU of this machine if it has one, else its CPU as one XLA device.
    """
    if [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]:
        os.environ["PJRT_DEVICE"] = "TPU"
    else:
        os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="1")


def restore_old_names():
    """
    Give torch_xla the names and fields back that fairseq uses.
    """
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp
    import torch_xla.runtime as xr

    xm.xrt_world_size, xm.get_ordinal = xr.world_size, xr.global_ordinal
    memory, spawn = xm.get_memory_info, xmp.spawn

    def get_memory_info(device=None):
        try:
            found = memory(device)
        except RuntimeError:  # the CPU does not count its memory
            found = {"bytes_used": 0, "bytes_limit": 0}
        used, limit = found["bytes_used"] // 1024, found["bytes_limit"] // 1024
        return {"kb_free": limit - used, "kb_total": limit}

    def spawn_all(fn, args=(), nprocs=None, **more):
        return spawn(fn, args, **more)  # a number of processes is refused; one for each chip is the default

    xm.get_memory_info, xmp.spawn = get_memory_info, spawn_all


def report(step, loss):
    """
    Tell the agent the step, if there is an agent.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({"step": step, "loss": loss}))
        temporary.replace(name)


def watch():
    """
    Stand before two functions of fairseq: one it calls for each epoch, one after each update.
    """
    from fairseq.distributed.utils import get_global_rank
    from fairseq.logging import metrics
    from fairseq_cli import train

    after_update, epoch = train.validate_and_save, train.train

    def tell(step, loss):
        if get_global_rank() == 0:
            report(step, loss)

    def one_epoch(cfg, trainer, task, epoch_itr):
        # fairseq looks at --max-update only after an update, and would add one to a finished training.
        if trainer.get_num_updates() >= (cfg.optimization.max_update or math.inf):
            tell(trainer.get_num_updates(), None)
            return [None], True
        return epoch(cfg, trainer, task, epoch_itr)

    def validate_and_save(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        step = trainer.get_num_updates()
        if step >= (cfg.optimization.max_update or math.inf):
            # The last save gets a name too; by itself fairseq writes only checkpoint_last.pt here. That its
            # position in the data is wrong does no harm: nothing comes after it.
            cfg.checkpoint.save_interval_updates = max(step, 1)
        result = after_update(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        tell(step, metrics.get_smoothed_values("train").get("loss"))
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


def refuse_saves_within_epochs(words):
    """
    Stop when --save-interval-updates is given: with --tpu such a save has a wrong position in the data.
    """
    if any(word.partition("=")[0] == "--save-interval-updates" for word in words):
        sys.exit("error: with --tpu save at the ends of epochs only: take --save-interval-updates away")


TRAINING = sys.argv[1:2] == ["train"]
if TRAINING:
    # Also at the top, for the processes that a TPU's replicas run in. The log first: torch_xla opens one too,
    # that keeps fairseq's lines back.
    logging.basicConfig(format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", level=logging.INFO)
    choose_device()
    restore_old_names()
    watch()


def main():
    """
    Run the command named first, with the remaining words as its flags.
    """
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if TRAINING:
        import checkpoints

        refuse_saves_within_epochs(sys.argv)
        checkpoints.repair(save_folder(sys.argv))
    command = importlib.import_module(f"fairseq_cli.{sys.argv[1]}")
    first, sys.argv = sys.argv, [sys.argv[0], *sys.argv[2:]]
    command.cli_main()
    sys.argv = first


if __name__ == "__main__":
    main()
