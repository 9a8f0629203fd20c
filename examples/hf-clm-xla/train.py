"""
Pretrain GPT-2 from its config with the Trainer of transformers on PyTorch/XLA, so that it can be killed.

Every flag of TrainingArguments works as in run_clm.py: sh venv.sh python train.py --help
"""

# ruff: noqa: E402 (signal handler and device come before the long imports)

import multiprocessing
import signal
import threading

STOP = threading.Event()


def ask_to_stop(_number, _frame):
    """
    Remember SIGTERM; a spawned process would otherwise outlive its leader and go on training.
    """
    STOP.set()
    for child in multiprocessing.active_children():
        child.terminate()


# Before the long imports, and at the top of the file, so that spawned processes have it too.
signal.signal(signal.SIGTERM, ask_to_stop)

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import hardware

PROCESSES = hardware.choose()
# The hub is not asked for anything: model and tokenizer are made here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)
from transformers.utils import logging

STOPPED = 128 + signal.SIGTERM
WHOLE = ("trainer_state.json", "optimizer.pt", "scheduler.pt", "config.json")


@dataclass
class ModelArguments:
    """
    Size of the model, and where its data are.
    """

    data: str = "data"
    context: int = 64
    width: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.0
    step_seconds: float = 0.0


class Windows(torch.utils.data.Dataset):
    """
    Cut one memory-mapped file of token numbers into windows: the text is on disk once, in two bytes a token.
    """

    def __init__(self, file, context):
        self.tokens = np.load(file, mmap_mode="r")
        self.context = context

    def __len__(self):
        return len(self.tokens) // self.context

    def __getitem__(self, index):
        window = self.tokens[index * self.context : (index + 1) * self.context]
        ids = torch.from_numpy(window.astype(np.int64))
        return {"input_ids": ids, "labels": ids}


class Report(TrainerCallback):
    """
    Print each loss, tell the agent how far we are, and save and stop when SIGTERM came.
    """

    def __init__(self, step_seconds):
        self.step_seconds = step_seconds
        self.began = time.monotonic()
        self.file = os.environ.get("TPUCTL_PROGRESS_FILE")

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        self.write({"step": state.global_step})
        # All replicas must stop after the same step. The Trainer's own enable_jit_checkpoint sets a signal
        # handler, which Python refuses in the threads that torch_xla runs replicas in.
        if any(xm.mesh_reduce("stop", STOP.is_set(), list)) if xr.world_size() > 1 else STOP.is_set():
            control.should_save = control.should_training_stop = True
        time.sleep(max(0.0, self.step_seconds - (time.monotonic() - self.began)))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.6f}", flush=True)
            self.write({"step": state.global_step, "loss": float(logs["loss"])})

    def write(self, progress):
        if self.file:
            temporary = Path(f"{self.file}.tmp")
            temporary.write_text(json.dumps(progress))
            temporary.replace(self.file)


def arguments():
    """
    Return the settings; refuse those that lose work.
    """
    model, training = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    if training.max_steps <= 0:
        sys.exit("error: give --max_steps, the same number as job.target_steps in tpuctl.yaml")
    if training.save_total_limit == 1:
        sys.exit(
            "error: --save_total_limit 1 keeps only a checkpoint that nobody has checked; give 2 or more"
        )
    if training.optim == "adamw_torch_fused":  # the Trainer's default, which torch_xla does not have
        training.optim = "adamw_torch"
    training.disable_tqdm = True
    training.dataloader_pin_memory = False
    return model, training


def checkpoint(training, facts):
    """
    Return the folder to resume from, or None. The Trainer itself checks nothing here.
    """
    place = training.resume_from_checkpoint
    if not place:
        print("starting from step 0", flush=True)
        return None
    missing = [name for name in WHOLE if not (Path(place) / name).is_file()]
    if missing:
        # Without optimizer.pt the Trainer would go on with a fresh optimizer and not say so.
        sys.exit(f"error: {place} lacks {', '.join(missing)}: not written to its end; take an older one")
    saved = json.loads((Path(place) / "config.json").read_text()).get("data_sha256")
    if saved != facts["sha256"]:
        sys.exit(
            f"error: {place} was trained on other data or with another tokenizer (data_sha256 {saved}, "
            f"here {facts['sha256']}); a token would mean something else. Keep the text and the Python"
        )
    step = json.loads((Path(place) / "trainer_state.json").read_text())["global_step"]
    print(f"resumed from step {step}", flush=True)
    return place


def replica(_index):
    """
    Train as one of the replicas; leave with 143 when asked to stop: the Trainer's own 0 reads as finished.
    """
    logging.disable_progress_bar()
    model, training = arguments()
    data = Path(model.data)
    facts = json.loads((data / "data.json").read_text())
    resume = checkpoint(training, facts)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(data / "tokenizer.json"), eos_token="<|endoftext|>", model_max_length=model.context
    )
    config = GPT2Config(
        vocab_size=facts["vocab_size"],
        n_positions=model.context,
        n_embd=model.width,
        n_layer=model.layers,
        n_head=model.heads,
        resid_pdrop=model.dropout,
        embd_pdrop=model.dropout,
        attn_pdrop=model.dropout,
        bos_token_id=facts["end"],
        eos_token_id=facts["end"],
        loss_type="ForCausalLM",
        data_sha256=facts["sha256"],
    )
    torch.manual_seed(training.seed)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training,
        train_dataset=Windows(data / "tokens.npy", model.context),
        processing_class=tokenizer,  # saved with each checkpoint, so that the folder can be used as a model
        data_collator=default_data_collator,  # all windows have one length: nothing to pad
        callbacks=[Report(model.step_seconds)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    if trainer.state.global_step < training.max_steps:
        xm.master_print(f"asked to stop: saved step {trainer.state.global_step}", flush=True)
        sys.exit(STOPPED)  # also becomes the status of the leader


if __name__ == "__main__":
    if STOP.is_set():
        sys.exit(STOPPED)
    xmp.spawn(replica, nprocs=PROCESSES)  # in 2020: xla_spawn.py --num_cores 8
