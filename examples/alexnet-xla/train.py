"""
Train AlexNet with PyTorch/XLA: one replica for each core of a TPU, or replicas on the CPU to rehearse it.

Every flag has a variable of the same name: --step-seconds is ALEXNET_STEP_SECONDS.
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

import argparse
import json
import os
import sys
import time
from pathlib import Path

import hardware

ON_CPU = hardware.choose(int(os.environ.get("ALEXNET_REPLICAS") or 8))

import checkpoints
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from model import alexnet
from torch import nn
from torch.utils.data import DataLoader, Dataset

if ON_CPU:
    hardware.compile_one_at_a_time()

STOPPED = 128 + signal.SIGTERM
MEAN, SPREAD = 0.45, 0.225
ONE_AT_A_TIME = threading.Lock()


def arguments():
    """
    Return the settings from flags, then variables, then defaults.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )

    def add(name, default, text):
        variable = "ALEXNET_" + name.upper().replace("-", "_")
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", type=type(default), default=value, help=text)

    add("steps", 120, "train until this step")
    add("save-every", 20, "steps between two checkpoints")
    add("log-every", 5, "steps between two log lines")
    add("step-seconds", 0.0, "shortest time of a step, to let people watch")
    add("batch", 32, "images in a step, over all replicas")
    add("image-size", 64, "images are made this large; AlexNet's own size is 224")
    add("divide", 8, "AlexNet's widths are divided by this; 1 is the full network")
    add("rate", 0.001, "learning rate")
    add("seed", 0, "seed of parameters, data order and dropout")
    add("keep", 3, "checkpoints that are kept")
    add("data", "data", "folder of images.npy and labels.npy")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "folder of the checkpoints")
    return parser.parse_args()


class Steps(Dataset):
    """
    Hold one replica's share of the images of each step, ready for AlexNet.

    The choice depends on seed and step only. So it does not matter how far ParallelLoader has read ahead
    when the machine goes away, and a resumed run sees the images that an unbroken one sees.
    """

    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        self.images = np.load(Path(args.data) / "images.npy", mmap_mode="r")
        self.labels = np.load(Path(args.data) / "labels.npy")

    def __getitem__(self, step):
        rng = np.random.default_rng([self.args.seed, step])
        chosen = rng.integers(0, len(self.images), self.args.batch)[self.rank :: self.world]
        x = torch.from_numpy(np.asarray(self.images[chosen], np.float32)).unsqueeze(1) / 255
        x = nn.functional.interpolate(x, size=self.args.image_size, mode="bilinear")
        y = torch.from_numpy(np.asarray(self.labels[chosen], np.int64))
        return ((x - MEAN) / SPREAD).expand(-1, 3, -1, -1).contiguous(), y


def replica(_index, args):
    """
    Train as one of the replicas; leave with 143 when asked to stop before the last step.
    """
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    if args.batch % world:
        raise SystemExit(f"error: a batch of {args.batch} cannot be shared equally by {world} replicas")
    with ONE_AT_A_TIME:  # replicas that are threads share torch's random numbers
        torch.manual_seed(args.seed)
        net = alexnet(10, args.divide)
    net = net.to(device).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.rate)
    step = resume(args, net, optimizer, rank, world)
    data = Steps(args, rank, world)
    # A generator of its own: by default it draws from the numbers that all threads share.
    loader = DataLoader(data, batch_size=None, sampler=range(step, args.steps), generator=torch.Generator())
    began = time.monotonic()
    for x, y in pl.MpDeviceLoader(loader, device):
        # Dropout is a function of seed, step and rank too: no random state has to be saved.
        xm.set_rng_state((args.seed << 40) + step * world + rank, str(device))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)  # the mean of the gradients of all replicas
        step += 1
        stopping, mean = share(loss, device, world)
        if rank == 0:
            report(step, mean)
            if step % args.log_every == 0 or step == args.steps:
                print(f"step {step} loss {mean:.6f}", flush=True)
            if stopping or step % args.save_every == 0 or step == args.steps:
                save(args, step, world, net, optimizer)
        if stopping:
            break
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
        began = time.monotonic()
    if step < args.steps:
        if rank == 0:
            print(f"asked to stop: saved step {step}", flush=True)
        sys.exit(STOPPED)  # also becomes the status of the leader


def share(loss, device, world):
    """
    Run the step; return whether any replica was asked to stop, and the mean loss: all learn the same.
    """
    # A vector is data. A single 0 or 1 would be part of the program: replicas that were told to stop would
    # compile another one than those that were not yet, and wait for each other for ever.
    asked = torch.tensor([float(STOP.is_set())]).to(device)
    told = xm.all_reduce(xm.REDUCE_SUM, torch.cat([asked, loss.detach().view(1)]))
    torch_xla.sync()  # before this, nothing may be looked at
    stop, total = told.cpu().tolist()
    return stop > 0, total / world


def save(args, step, world, net, optimizer):
    """
    Write a checkpoint of tensors on the CPU, which any machine can load.
    """
    state = {"step": step, "world": world, "model": net.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoints.save(args.out, step, on_cpu(state), args.keep)


def on_cpu(value):
    """
    Return a copy of a state in which every tensor is on the CPU.
    """
    if isinstance(value, dict):
        return {key: on_cpu(part) for key, part in value.items()}
    if isinstance(value, list):
        return [on_cpu(part) for part in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value


def resume(args, net, optimizer, rank, world):
    """
    Load the newest checkpoint, if there is one; return its step.
    """
    place = checkpoints.newest(args.out)
    if place is None:
        if rank == 0:
            print(f"starting from step 0 with {world} replicas on {xr.device_type()}", flush=True)
        return 0
    state = torch.load(place, map_location="cpu", weights_only=True)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        note = "" if state["world"] == world else f", saved by {state['world']} replicas"
        print(f"resumed from step {state['step']}{note}", flush=True)
        report(state["step"], None)
    return state["step"]


def report(step, loss):
    """
    Tell the agent how far we are, if there is one.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({"step": step} if loss is None else {"step": step, "loss": loss}))
        temporary.replace(name)


if __name__ == "__main__":
    if int(os.environ.get("TPUCTL_WORKERS") or 1) > 1:
        sys.exit("error: this example trains on one machine; choose a tpu.type with one worker")
    if STOP.is_set():
        sys.exit(STOPPED)
    xmp.spawn(replica, args=(arguments(),))  # in 2020: nprocs=8
