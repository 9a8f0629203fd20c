"""
Train BERT on masked words with the TensorFlow classes of transformers 4 and model.fit.

Data of a step depend on the seed and the step alone, so that it can be killed at any moment. Every flag has a
variable of the same name: --step-seconds is BERT_STEP_SECONDS.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

# Before the imports that read them. The classes need the Keras of their time, which is tf_keras now.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hardware
import numpy as np
import tensorflow as tf
import tf_keras as keras
from transformers import BertConfig, TFBertForMaskedLM

STOPPED = 128 + signal.SIGTERM
PAD, FIRST_WORD, MASK = 0, 5, 4  # prepare.py writes five special words first
NO_LABEL = -100  # a position that the loss of transformers leaves out


def arguments():
    """
    Return the settings from flags, then variables, then defaults.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )

    def add(name, default, text):
        value = os.environ.get("BERT_" + name.upper().replace("-", "_"), default)
        parser.add_argument(f"--{name}", type=type(default), default=type(default)(value), help=text)

    add("data", "data", "the folder that prepare.py made")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "where checkpoints go")
    add("tpu", "auto", "auto, none, local (this machine's chips) or the name of a TPU node")
    add("replicas", 2, "cores to use when there is no TPU")
    add("steps", 120, "steps to train")
    add("batch", 32, "sentences in a step, over all replicas")
    add("rate", 2e-3, "highest learning rate")
    add("save-every", 20, "steps between two checkpoints")
    add("log-every", 10, "steps between two log lines")
    add("keep", 3, "checkpoints to keep, at least 2")
    add("seed", 1, "seed of parameters, data order and masks")
    add("step-seconds", 0.0, "least time of a step, to rehearse with")
    add("width", 64, "width of the model; BERT's own is 768")
    add("layers", 2, "layers of the model; BERT's own are 12")
    parser.add_argument("--jit", action="store_true", help="compile with XLA, on one device, as a test")
    return parser.parse_args()


def batches(args, facts, start):
    """
    Return the batches from step *start* on, made by TensorFlow alone, each a function of seed and step.

    The tokens are in memory, which works on TPU nodes too; Dataset.to_tf_dataset of datasets would not.
    """
    tokens = tf.constant(np.load(f"{args.data}/tokens.npy"))
    shape = (args.batch, facts["tokens"])

    def batch(step):
        dice = tf.random.experimental.stateless_split(tf.stack([args.seed, tf.cast(step, tf.int32)]), 4)
        rows = tf.random.stateless_uniform(shape[:1], dice[0], maxval=len(tokens), dtype=tf.int32)
        ids = tf.gather(tokens, rows)
        hidden = (tf.random.stateless_uniform(shape, dice[1]) < 0.15) & (ids >= FIRST_WORD)
        words = tf.random.stateless_uniform(shape, dice[2], FIRST_WORD, facts["words"], tf.int32)
        chance = tf.random.stateless_uniform(shape, dice[3])
        shown = tf.where(chance < 0.8, MASK, tf.where(chance < 0.9, words, ids))
        return {
            "input_ids": tf.where(hidden, shown, ids),
            "attention_mask": tf.cast(ids != PAD, tf.int32),
            "labels": tf.where(hidden, ids, NO_LABEL),
        }

    return tf.data.Dataset.range(start, args.steps).map(batch).prefetch(2)


def network(args, facts):
    """
    Return the model with every variable made. Without dropout a resumed run is like an unbroken one.
    """
    config = BertConfig(
        vocab_size=facts["words"], hidden_size=args.width, num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.width // 16), intermediate_size=4 * args.width,
        max_position_embeddings=facts["tokens"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = TFBertForMaskedLM(config)
    model.build_in_name_scope()
    return model


def compiled(args, model):
    """
    Prepare *model* for fit and return its optimizer.
    """
    schedule = keras.optimizers.schedules.PolynomialDecay(args.rate, args.steps, end_learning_rate=0.0)
    optimizer = keras.optimizers.Adam(schedule, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    # No loss: the model has its own, which leaves positions out by multiplying, as XLA wants it.
    model.compile(optimizer=optimizer, jit_compile=args.jit)
    return optimizer


class Keeper(keras.callbacks.Callback):
    """
    Print and report the loss of each step, save every so often and when SIGTERM came.
    """

    def __init__(self, args, manager, step, stop):
        super().__init__()
        self.args, self.manager, self.step, self.stop = args, manager, step, stop
        self.began = time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        self.began = time.monotonic()
        self.model.reset_metrics()  # fit would give the mean of all steps so far

    def on_train_batch_end(self, batch, logs=None):
        args = self.args
        self.step += 1
        report(self.step, logs["loss"])
        last = self.step == args.steps
        if self.step % args.log_every == 0 or last:
            print(f"step {self.step} loss {logs['loss']:.6f}", flush=True)
        if self.step % args.save_every == 0 or last or self.stop:
            self.manager.save(checkpoint_number=self.step)
        if self.stop:
            self.model.stop_training = True
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - self.began)))


def restore(checkpoint, manager):
    """
    Load the newest checkpoint and return its step; 0 when there is none.
    """
    if not manager.latest_checkpoint:
        print("starting from step 0", flush=True)
        return 0
    checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    step = int(manager.latest_checkpoint.rpartition("-")[2])
    print(f"resumed from step {step}", flush=True)
    return step


def report(step, loss):
    """
    Tell the agent the step, if there is an agent.
    """
    name = os.environ.get("TPUCTL_PROGRESS_FILE")
    if name:
        temporary = Path(f"{name}.tmp")
        temporary.write_text(json.dumps({"step": step, "loss": loss}))
        temporary.replace(name)


def train(args, stop):
    """
    Train to the last step, or until *stop* is set; return the exit status.
    """
    facts = json.loads((Path(args.data) / "data.json").read_text())
    # Keras does not compile with XLA under MirroredStrategy, so that test has a device of its own.
    strategy = tf.distribute.get_strategy() if args.jit else hardware.strategy(args.tpu, args.replicas)
    if args.batch % strategy.num_replicas_in_sync:
        raise SystemExit(f"--batch {args.batch} cannot be shared by {strategy.num_replicas_in_sync} replicas")
    print(f"{type(strategy).__name__} with {strategy.num_replicas_in_sync} replicas", flush=True)
    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = network(args, facts)
        optimizer = compiled(args, model)
        vocab = tf.Variable(facts["vocab_sha256"], trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, vocab=vocab)
    manager = tf.train.CheckpointManager(checkpoint, args.out, max_to_keep=max(args.keep, 2))
    step = restore(checkpoint, manager)
    if vocab.numpy().decode() != facts["vocab_sha256"]:
        raise SystemExit(f"{args.out} was trained with another vocab.txt; its numbers would mean other words")
    if step >= args.steps:
        return 0
    keeper = Keeper(args, manager, step, stop)
    model.fit(
        batches(args, facts, step), steps_per_epoch=args.steps - step, epochs=1, verbose=0, callbacks=[keeper]
    )
    print(f"programs made: {model.train_function.experimental_get_tracing_count()}", flush=True)
    if keeper.step < args.steps:
        print(f"asked to stop: saved step {keeper.step}", flush=True)
    return 0 if keeper.step >= args.steps else STOPPED


def main():
    """
    Train; SIGTERM saves the step that is running, and leaves with 143.
    """
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    sys.exit(train(arguments(), stop))


if __name__ == "__main__":
    main()
