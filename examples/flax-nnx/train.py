"""
Train a small character model with flax nnx, optax, grain and Orbax.

Model, optimizer and the place in the data are one checkpoint: a run that was killed sees each window once,
and ends with the loss of an unbroken one.
"""

import argparse
import os
import signal
import sys
import sysconfig
from pathlib import Path

import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

STOPPED = 128 + signal.SIGTERM


def arguments():
    """
    Return the settings.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    folder = os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--out", default=folder, help="folder of the checkpoints, also gs://")
    return parser.parse_args()


class Windows:
    """
    The text of Python's standard library in windows of bytes: a random access source for grain.
    """

    def __init__(self, context):
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        self.text = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)
        self.context = context

    def __repr__(self):
        # grain stores this with its place, and takes up no other data with it.
        return f"Windows({len(self.text)}, {self.context})"

    def __len__(self):
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index):
        return self.text[index * self.context : (index + 1) * self.context + 1].astype(np.int32)


class Block(nnx.Module):
    """
    Attention and a hidden layer, each added to its input.
    """

    def __init__(self, width, dropout, rngs):
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x):
        mask = nnx.make_causal_mask(x[..., 0])
        x = x + self.dropout(self.attention(self.norms[0](x), mask=mask))
        return x + self.dropout(self.down(nnx.gelu(self.up(self.norms[1](x)))))


class Model(nnx.Module):
    """
    A small transformer over bytes.
    """

    def __init__(self, args, rngs):
        self.bytes = nnx.Embed(256, args.width, rngs=rngs)
        self.places = nnx.Embed(args.context, args.width, rngs=rngs)
        self.blocks = nnx.List([Block(args.width, args.dropout, rngs) for _ in range(args.layers)])
        self.norm = nnx.LayerNorm(args.width, rngs=rngs)

    def __call__(self, tokens):
        x = self.bytes(tokens) + self.places(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.bytes.attend(self.norm(x))


@nnx.jit
def train_step(model, optimizer, windows):
    """
    Make one update; return the loss.
    """

    def loss_of(model):
        logits = model(windows[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def main():
    """
    Train to the last step. SIGTERM is a wish to stop after the current one.
    """
    args, stop = arguments(), []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    model = Model(args, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(args.rate), wrt=nnx.Param)
    source = Windows(args.context)
    sampler = grain.IndexSampler(len(source), grain.NoSharding(), shuffle=True, num_epochs=None, seed=0)
    loader = grain.DataLoader(data_source=source, sampler=sampler, operations=[grain.Batch(args.batch)])
    data = iter(loader)

    # One mesh over all chips: the parameters are on each, every batch is split.
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere = jax.NamedSharding(mesh, jax.P())
    split = jax.NamedSharding(mesh, jax.P("data"))
    _, state = nnx.split((model, optimizer))
    state = jax.device_put(state, everywhere)

    folder = args.out if "://" in args.out else Path(args.out).absolute()
    options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=args.save_every)
    with ocp.CheckpointManager(folder, options=options) as manager:
        step = manager.latest_step() or 0
        if step:
            found = manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(pure(state)), data=grain.PyGrainCheckpointRestore(data)
                ),
            )
            nnx.replace_by_pure_dict(state, found["state"])
            print(f"resumed from step {step}", flush=True)
        nnx.update((model, optimizer), state)
        while step < args.steps and not stop:
            loss = train_step(model, optimizer, jax.device_put(next(data), split))
            step += 1
            if step % args.log_every == 0:
                print(f"step {step} loss {loss:.6f}", flush=True)
            last = bool(stop) or step == args.steps
            if manager.should_save(step) or last:
                now = pure(nnx.state((model, optimizer)))
                manager.save(
                    step, force=last,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardSave(now), data=grain.PyGrainCheckpointSave(data)
                    ),
                )  # fmt: skip
    sys.exit(STOPPED if step < args.steps else 0)


def pure(state):
    """
    Return the arrays as nested dictionaries; random keys as the numbers that Orbax can store.
    """
    return nnx.to_pure_dict(state)


if __name__ == "__main__":
    main()
