"""
Pretrain GPT-2 from its config with the Trainer of transformers, so that it can be killed at any moment.

Every flag of TrainingArguments works as in run_clm.py: sh venv.sh python train.py --help
"""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# The hub is not asked for anything: model and tokenizer are made here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
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
    Print each loss, and tell the agent how far we are, if there is one.
    """

    def __init__(self, step_seconds):
        self.step_seconds = step_seconds
        self.began = time.monotonic()
        self.file = os.environ.get("TPUCTL_PROGRESS_FILE")

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        self.write({"step": state.global_step})
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
    training.enable_jit_checkpoint = True  # SIGTERM saves and stops
    training.disable_tqdm = True
    training.dataloader_pin_memory = torch.accelerator.is_available()
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


def main():
    """
    Train, and leave with 143 when asked to stop: the Trainer's own 0 would read as finished.
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
        # The save may have come just before this step's update, so the checkpoint can be one step older.
        print(f"asked to stop: saved, left after step {trainer.state.global_step}", flush=True)
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
