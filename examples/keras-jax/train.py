"""
Train a small convnet with Keras 3 on JAX: model.fit, and BackupAndRestore for what happens in between.

It needs no data: each picture is a noisy bar that stands or lies in one of five places. Replace `pictures`.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np

CLASSES, SIZE = 10, 28


def arguments():
    """
    Return the settings.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    folder = os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pictures", type=int, default=4096)
    parser.add_argument("--save-every", default="epoch", help="epoch, or a number of batches")
    parser.add_argument("--out", default=folder, help="folder of the backup")
    return parser.parse_args()


def pictures(count, seed):
    """
    Return *count* pictures with their classes.
    """
    chance = np.random.default_rng(seed)
    classes = chance.integers(CLASSES, size=count)
    found = chance.normal(0.0, 2.0, size=(count, SIZE, SIZE, 1)).astype("float32")
    for picture, kind in zip(found, classes, strict=True):
        place = slice(4 * (kind % 5) + 4, 4 * (kind % 5) + 8)
        picture[(place, slice(None)) if kind < 5 else (slice(None), place)] += 1.0
    return found, classes


def network():
    """
    Return the model, compiled.
    """
    model = keras.Sequential([
        keras.Input((SIZE, SIZE, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(CLASSES),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def main():
    """
    Train to the last epoch, wherever the last machine stopped.
    """
    args = arguments()
    if jax.device_count() > 1:  # all chips of the machine: each gets its part of every batch
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    keras.utils.set_random_seed(0)
    model = network()
    every = args.save_every if args.save_every == "epoch" else int(args.save_every)
    backup = keras.callbacks.BackupAndRestore(
        # Without delete_checkpoint=False the backup is gone as soon as fit() ends, and with it the model.
        args.out, save_freq=every, delete_checkpoint=False
    )  # fmt: skip
    data = pictures(args.pictures, seed=0)
    model.fit(
        *data, batch_size=args.batch, epochs=args.epochs, verbose=2, shuffle=False,
        validation_data=pictures(512, seed=1), callbacks=[backup],
    )  # fmt: skip


if __name__ == "__main__":
    main()
