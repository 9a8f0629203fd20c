"""
Train a small character model with Lightning: Trainer.fit, ModelCheckpoint, and ckpt_path="last".
"""

import argparse
import os
import sysconfig
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn


def arguments():
    """
    Return the settings.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    folder = os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--out", default=folder, help="folder of the checkpoints")
    return parser.parse_args()


class Windows(torch.utils.data.Dataset):
    """
    The text of Python's standard library, in windows of bytes and in a fixed random order.
    """

    def __init__(self, context):
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = b"".join(file.read_bytes() for file in files)
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.context = context
        self.order = torch.randperm(len(text) // context - 1, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.order)

    def __getitem__(self, index):
        start = int(self.order[index]) * self.context
        window = self.text[start : start + self.context + 1]
        return window[:-1], window[1:]


class Resumable(torch.utils.data.DataLoader):
    """
    Batches in order, from where the checkpoint left: Lightning asks any loader for the last two methods.

    Without them, a run that is resumed in mid-epoch begins with the first batch again.
    """

    done = 0

    def __iter__(self):
        size = self.batch_size
        for place in range(self.done, len(self)):
            self.done = place + 1
            windows = [self.dataset[index] for index in range(place * size, (place + 1) * size)]
            yield self.collate_fn(windows)
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class Model(lightning.LightningModule):
    """
    A recurrent model over bytes.
    """

    def __init__(self, width, rate):
        super().__init__()
        self.save_hyperparameters()
        self.bytes = nn.Embedding(256, width)
        self.cells = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 256)

    def training_step(self, batch, index):
        seen, following = batch
        logits = self.out(self.cells(self.bytes(seen))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), self.hparams.rate)


def main():
    """
    Train to the last step, from the newest checkpoint if there is one.
    """
    args = arguments()
    lightning.seed_everything(0)
    data = Resumable(Windows(args.context), batch_size=args.batch, drop_last=True)
    saves = ModelCheckpoint(
        dirpath=args.out,
        filename="{step}",
        every_n_train_steps=args.save_every,
        save_top_k=-1,
        save_last=True,
    )
    trainer = lightning.Trainer(
        max_steps=args.steps, callbacks=[saves], logger=False, enable_model_summary=False
    )
    trainer.fit(Model(args.width, args.rate), data, ckpt_path="last")
    print(f"step {trainer.global_step} loss {trainer.callback_metrics['loss']:.6f}", flush=True)


if __name__ == "__main__":
    main()
