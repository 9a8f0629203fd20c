"""
Train a small transformer with JAX on all devices of a slice; Orbax saves to a folder or a bucket.

Every flag has a variable of the same name: --step-seconds is JAX_LM_STEP_SECONDS.
"""

import argparse
import functools
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

# Only the CPU heeds this: eight devices stand in for the cores of a v3-8.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import corpus
import jax
import jax.numpy as jnp
import model
import numpy as np
import optax
import orbax.checkpoint as ocp
import workers
from jax.sharding import Mesh, NamedSharding, PartitionSpec
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
        variable = "JAX_LM_" + name.upper().replace("-", "_")
        value = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", type=type(default), default=value, help=text)

    add("steps", 200, "train until this step")
    add("save-every", 25, "steps between two checkpoints, unless tpuctl tells a time")
    add("log-every", 10, "steps between two log lines")
    add("step-seconds", 0.0, "shortest time of a step, to let people watch")
    add("batch", 32, "windows in a step, over all devices")
    add("context", 64, "characters in a window")
    add("width", 64, "size of a character's vector")
    add("layers", 2, "transformer layers")
    add("heads", 4, "attention heads")
    add("rate", 0.003, "learning rate")
    add("seed", 0, "seed of parameters and data order")
    add("keep", 3, "checkpoints that are kept")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "folder, or gs://bucket/folder")
    return parser.parse_args()


def checkpoint_manager(args):
    """
    Open the checkpoints; Orbax shows finished ones only and removes old ones.
    """
    place = args.out if "://" in args.out else Path(args.out).absolute()
    options = ocp.CheckpointManagerOptions(max_to_keep=args.keep)
    return ocp.CheckpointManager(place, options=options)


def step_function(optimizer, heads, everywhere):
    """
    Return the compiled training step; JAX splits the batch and averages gradients by the shardings.

    It takes the wishes of all devices and returns the largest: workers hear of a SIGTERM at different
    moments, but must save, and stop, after the same step.
    """

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=everywhere)
    def step(state, windows, wishes):
        loss, grads = jax.value_and_grad(model.mean_loss)(state["parameters"], windows, heads)
        updates, moments = optimizer.update(grads, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": moments}, loss, jnp.max(wishes)

    return step


def start(args, manager, optimizer, everywhere):
    """
    Return the step and the state to go on from: the newest checkpoint's, or fresh ones.
    """

    @functools.partial(jax.jit, out_shardings=everywhere)
    def fresh():
        key = jax.random.key(args.seed)
        parameters = model.initial_parameters(key, args.context, args.width, args.layers)
        return {"parameters": parameters, "optimizer": optimizer.init(parameters)}

    newest = manager.latest_step()
    if newest is None:
        print("starting from step 0", flush=True)
        return 0, fresh()
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        jax.eval_shape(fresh),
    )
    state = manager.restore(newest, args=ocp.args.StandardRestore(shapes))
    print(f"resumed from step {newest}", flush=True)
    return newest, state


def divided(array, sharding):
    """
    Spread *array*, which every worker knows, over all devices; each worker gives its own devices their part.
    """
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def train(args, stop):
    """
    Train and return the exit status. *stop* is a list that gets an item when we are asked to stop.
    """
    mesh = Mesh(jax.devices(), ("data",))
    everywhere, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    if args.batch % mesh.size:
        sys.exit(f"--batch {args.batch} cannot be shared equally by {mesh.size} devices")
    text, optimizer = corpus.load(), optax.adam(args.rate)
    advance = step_function(optimizer, args.heads, everywhere)
    manager = checkpoint_manager(args)
    step, state = start(args, manager, optimizer, everywhere)
    report(step, None, None)
    saving, wish = Saving(args.save_every), GO_ON
    while step < args.steps and wish != STOP:
        began = time.monotonic()
        windows = corpus.batch(text, step, seed=args.seed, size=args.batch, context=args.context)
        wish = STOP if stop else SAVE if saving.due(step + 1) else GO_ON
        wishes = np.full(mesh.size, wish, np.int32)
        state, loss, wish = advance(state, divided(windows, split), divided(wishes, split))
        step, loss, wish = step + 1, float(loss), int(wish)
        report(step, loss, saving.seconds)
        if step % args.log_every == 0 or step == args.steps:
            print(f"step {step} loss {loss:.9g}", flush=True)  # nine digits tell all float32 values apart
        if wish != GO_ON or step == args.steps:
            save_began = time.monotonic()
            manager.save(step, args=ocp.args.StandardSave(state), force=True)
            saving.done(save_began)
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - began)))
    manager.close()
    if step == args.steps:
        return 0
    print(f"asked to stop: saved step {step}", flush=True)
    return STOPPED


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
    Turn SIGTERM into a wish to stop after the current step.
    """
    args, stop = arguments(), []
    try:
        workers.join()
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))  # after JAX, which sets its own
        sys.exit(train(args, stop))
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        # At a usual exit JAX and Orbax would first wait for the other workers, which may be gone.
        os._exit(1)


if __name__ == "__main__":
    main()
