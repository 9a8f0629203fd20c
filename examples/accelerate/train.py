"""
Train a small character model with Accelerate: save_state in numbered folders, load_state to go on.
"""

import argparse
import os
import sysconfig
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn


def arguments():
    """
    Return the settings.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    folder = os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--windows", type=int, default=3200, help="windows of text in an epoch")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--out", default=folder, help="folder of the checkpoints")
    parser.add_argument(
        "--resume", default=os.environ.get("TPUCTL_RESUME", ""), help="folder of one checkpoint"
    )
    return parser.parse_args()


class Model(nn.Module):
    """
    A recurrent model over bytes.
    """

    def __init__(self, width):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.cells = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 256)

    def forward(self, windows):
        logits = self.out(self.cells(self.bytes(windows[:, :-1]))[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def windows(count, context):
    """
    Return windows of bytes of Python's standard library.
    """
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray(b"".join(file.read_bytes() for file in files)[: count * (context + 1)])
    return torch.frombuffer(text, dtype=torch.uint8).long().view(-1, context + 1)


def main():
    """
    Train to the last epoch.
    """
    args = arguments()
    set_seed(0)
    # Each epoch has an order of its own, by its number: a resumed run skips what was seen, and nothing else.
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    data = torch.utils.data.DataLoader(
        windows(args.windows, args.context), batch_size=args.batch, shuffle=True, drop_last=True
    )
    model = Model(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), args.rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, args.epochs * len(data))
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)

    step = 0
    if args.resume:
        accelerator.load_state(args.resume)
        step = int(args.resume.rstrip("/").rpartition("_")[2])
        accelerator.print(f"resumed from step {step}", flush=True)
    for epoch in range(step // len(data), args.epochs):
        data.set_epoch(epoch)
        done = step - epoch * len(data)
        for batch in accelerator.skip_first_batches(data, done) if done else data:
            loss = model(batch)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % args.log_every == 0:
                accelerator.print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step % args.save_every == 0 or step == args.epochs * len(data):
                accelerator.save_state(f"{args.out}/step_{step}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
