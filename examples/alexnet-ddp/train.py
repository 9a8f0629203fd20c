"""
Train AlexNet with DistributedDataParallel, one process for each core or accelerator of a machine.

Started by torchrun. Every flag has a variable of the same name: --step-seconds is ALEXNET_STEP_SECONDS.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import checkpoints
import numpy as np
import torch
import torch.distributed as dist
from model import alexnet
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STOPPED = 128 + signal.SIGTERM
MEAN, SPREAD = 0.45, 0.225


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
    add("batch", 32, "images in a step, over all processes")
    add("image-size", 64, "images are made this large; AlexNet's own size is 224")
    add("divide", 8, "AlexNet's widths are divided by this; 1 is the full network")
    add("rate", 0.001, "learning rate")
    add("seed", 0, "seed of parameters, data order and dropout")
    add("keep", 3, "checkpoints that are kept")
    add("data", "data", "folder of images.npy and labels.npy")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "folder of the checkpoints")
    return parser.parse_args()


def join():
    """
    Join the other processes; return the device of this one: an accelerator where there is one, else the CPU.
    """
    local = int(os.environ["LOCAL_RANK"])
    if not torch.accelerator.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    if local >= torch.accelerator.device_count():
        sys.exit(f"error: {torch.accelerator.device_count()} devices; set ALEXNET_PROCESSES to that number")
    device = torch.device(torch.accelerator.current_accelerator().type, local)
    torch.accelerator.set_device_index(local)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    return device


def batch(args, images, labels, step, rank, world):
    """
    Return this process's share of the images of *step*, ready for AlexNet.

    The choice depends on seed and step only, so a resumed run sees exactly what an unbroken one sees.
    """
    chosen = np.random.default_rng([args.seed, step]).integers(0, len(images), args.batch)[rank::world]
    x = torch.from_numpy(np.asarray(images[chosen], np.float32)).unsqueeze(1) / 255
    x = nn.functional.interpolate(x, size=args.image_size, mode="bilinear")
    return ((x - MEAN) / SPREAD).expand(-1, 3, -1, -1), torch.from_numpy(np.asarray(labels[chosen], np.int64))


def share(stopping, loss, device, world):
    """
    Return whether any process was asked to stop, and the mean loss: all processes learn the same.
    """
    told = torch.tensor([float(stopping), float(loss)], device=device)
    dist.all_reduce(told)
    return told[0].item() > 0, told[1].item() / world


def train(args, stop):
    """
    Train and return the exit status. *stop* is a list that gets an item when we are asked to stop.
    """
    if int(os.environ.get("TPUCTL_WORKERS") or 1) > 1:
        sys.exit("error: this example trains on one machine; choose a tpu.type with one worker")
    device = join()
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch % world:
        sys.exit(f"error: a batch of {args.batch} cannot be shared equally by {world} processes")
    images = np.load(Path(args.data) / "images.npy", mmap_mode="r")
    labels = np.load(Path(args.data) / "labels.npy")
    torch.manual_seed(args.seed)
    net = DistributedDataParallel(alexnet(10, args.divide).to(device))
    optimizer = torch.optim.Adam(net.parameters(), lr=args.rate)
    step = resume(args, net, optimizer, device, world, rank)
    stopping = False
    while step < args.steps and not stopping:
        began = time.monotonic()
        # Dropout is a function of seed, step and rank too: no random state has to be saved.
        torch.manual_seed((args.seed << 40) + step * world + rank)
        x, y = (part.to(device) for part in batch(args, images, labels, step, rank, world))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        stopping, mean = share(bool(stop), loss.detach(), device, world)
        if rank == 0:
            report(step, mean)
            if step % args.log_every == 0 or step == args.steps:
                print(f"step {step} loss {mean:.6f}", flush=True)
            if stopping or step % args.save_every == 0 or step == args.steps:
                state = {"step": step, "world": world, "model": net.module.state_dict()}
                state["optimizer"] = optimizer.state_dict()
                checkpoints.save(args.out, step, state, args.keep)
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
    dist.barrier()  # nobody leaves while rank 0 still saves
    dist.destroy_process_group()
    if step == args.steps:
        return 0
    if rank == 0:
        print(f"asked to stop: saved step {step}", flush=True)
    return STOPPED


def resume(args, net, optimizer, device, world, rank):
    """
    Load the newest checkpoint, if there is one; return its step.
    """
    place = checkpoints.newest(args.out)
    if place is None:
        if rank == 0:
            print("starting from step 0", flush=True)
        return 0
    state = torch.load(place, map_location=device, weights_only=True)
    net.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        note = "" if state["world"] == world else f", saved by {state['world']} processes"
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


def main():
    """
    Turn SIGTERM into a wish to stop after the current step.
    """
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    sys.exit(train(arguments(), stop))


if __name__ == "__main__":
    main()
