"""
Train BERT on masked words, on a TPU or on the cores of this machine, so that it can be killed at any moment.

Data and dropout of a step depend on the seed and the step alone: a resumed run has the losses of an unbroken
one. Every flag has a variable of the same name: --step-seconds is BERT_STEP_SECONDS. Other variables in its
value are read too: BERT_LOGS='gs://$TPUCTL_BUCKET/tensorboard'.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

# The machines of a rehearsal share their cores; this much logging is for errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import hardware
import model as bert
import tensorflow as tf
import tf_keras as keras

# A file that is cut short shows as any of these, depending on where.
UNREADABLE = (tf.errors.OpError, LookupError, ValueError, RuntimeError)
STOPPED = 42  # what TensorFlow's own PreemptionCheckpointHandler leaves with


def arguments():
    """
    Return the settings from flags, then variables, then defaults.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )

    def add(name, default, text):
        value = os.environ.get("BERT_" + name.upper().replace("-", "_"), default)
        value = os.path.expandvars(value) if isinstance(value, str) else value
        parser.add_argument(f"--{name}", type=type(default), default=type(default)(value), help=text)

    add("data", "data", "what prepare.py made: a folder or a gs:// address")
    add("out", os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"), "where checkpoints go")
    add("logs", "logs", "where TensorBoard's files go: a folder or a gs:// address")
    add("config", "config.json", "sizes of the model, in Hugging Face's names")
    add("tpu", "auto", "auto, none, local (this machine's chips) or the name of a TPU node")
    add("replicas", 2, "cores to use when there is no TPU")
    add("steps", 120, "steps to train")
    add("batch", 32, "examples in a step, over all replicas")
    add("rate", 2e-3, "highest learning rate")
    add("warmup", 20, "steps until the highest learning rate")
    add("save-every", 20, "steps between two checkpoints")
    add("log-every", 10, "steps between two log lines")
    add("keep", 3, "checkpoints to keep, at least 2")
    add("shuffle", 100_000, "examples held in memory to shuffle them")
    add("seed", 1, "seed of data order and dropout")
    add("step-seconds", 0.0, "least time of a step, to rehearse with")
    return parser.parse_args()


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """
    Rise in a line to *rate* at step *warmup*, then fall in a line to zero at step *steps*.
    """

    def __init__(self, rate, warmup, steps):
        self.rate, self.warmup, self.steps = rate, warmup, steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rise = (step + 1) / max(self.warmup, 1)
        fall = (self.steps - step) / max(self.steps - self.warmup, 1)
        return self.rate * tf.clip_by_value(tf.minimum(rise, fall), 0.0, 1.0)


def batches(args, facts, strategy, step):
    """
    Yield the batches from *step* on, without end. Each epoch has its own order, made from the seed.
    """
    lengths = dict.fromkeys(("ids", "present"), facts["tokens"])
    lengths.update(dict.fromkeys(("positions", "labels", "weights"), facts["masked"]))
    features = {key: tf.io.FixedLenFeature([length], tf.int64) for key, length in lengths.items()}
    files = sorted(tf.io.gfile.glob(f"{args.data}/*.tfrecord"))
    if len(files) != facts["shards"]:
        raise SystemExit(f"{args.data} has {len(files)} TFRecord files, its data.json says {facts['shards']}")

    def parse(lines):
        return {key: tf.cast(value, tf.int32) for key, value in tf.io.parse_example(lines, features).items()}

    held = min(args.shuffle, facts["examples"])
    epoch, skip = divmod(step, facts["examples"] // args.batch)
    while True:
        records = tf.data.TFRecordDataset(files).shuffle(held, seed=args.seed * 100_003 + epoch)
        found = records.batch(args.batch, drop_remainder=True).skip(skip).map(parse)
        yield from strategy.experimental_distribute_dataset(found.prefetch(2))
        epoch, skip = epoch + 1, 0


def step_function(strategy, model, optimizer, seed):
    """
    Return a compiled function that trains one global batch and returns its mean loss.
    """

    def on_replica(batch, step):
        context = tf.distribute.get_replica_context()
        noise = tf.random.experimental.stateless_fold_in([seed, 0], step)
        noise = tf.random.experimental.stateless_fold_in(noise, context.replica_id_in_sync_group)
        weights = tf.cast(batch["weights"], tf.float32)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))
        with tf.GradientTape() as tape:
            logits = model(batch["ids"], batch["present"], batch["positions"], seed=noise)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
            loss = tf.reduce_sum(each * weights) / total
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def run(batch, step):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(on_replica, (batch, step)), axis=None)

    return run


def build(args, strategy, config, facts):
    """
    Return model and optimizer, with every variable made, inside the strategy.
    """
    with strategy.scope():
        model = bert.Bert(config)
        optimizer = keras.optimizers.AdamW(
            Warmup(args.rate, args.warmup, args.steps), weight_decay=0.01, global_clipnorm=1.0
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "layer_normalization"])
        ids = tf.zeros((1, facts["tokens"]), tf.int32)
        model(ids, tf.ones_like(ids), tf.zeros((1, facts["masked"]), tf.int32))
        optimizer.build(model.trainable_variables)
    return model, optimizer


def restore(checkpoint, manager):
    """
    Load the newest checkpoint that can be read and return its step; 0 when there is none.
    """
    for leftover in tf.io.gfile.glob(f"{manager.directory}/*_temp*"):
        tf.io.gfile.rmtree(leftover)  # A kill during a save leaves it, and nobody else removes it.
    for path in reversed(manager.checkpoints):
        try:
            checkpoint.restore(path).assert_existing_objects_matched()
        except UNREADABLE as error:
            print(f"{path} cannot be read: {repr(error)[:200]}", flush=True)
            continue
        step = int(path.rpartition("-")[2])
        print(f"resumed from step {step}", flush=True)
        return step
    if manager.checkpoints:
        # What was read in part is in the model already, so it cannot start anew either.
        raise SystemExit(f"no checkpoint in {manager.directory} can be read; nothing was trained or removed")
    return 0


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
    with tf.io.gfile.GFile(f"{args.data}/data.json") as file:
        facts = json.load(file)
    config = json.loads(Path(args.config).read_text())
    strategy = hardware.strategy(args.tpu, args.replicas)
    print(f"{type(strategy).__name__} with {strategy.num_replicas_in_sync} replicas", flush=True)
    if args.batch % strategy.num_replicas_in_sync:
        raise SystemExit(f"--batch {args.batch} cannot be shared by {strategy.num_replicas_in_sync} replicas")
    model, optimizer = build(args, strategy, config, facts)
    vocab = tf.Variable(facts["vocab_sha256"], trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, vocab=vocab)
    manager = tf.train.CheckpointManager(checkpoint, args.out, max_to_keep=max(args.keep, 2))
    step = saved = restore(checkpoint, manager)
    if vocab.numpy().decode() != facts["vocab_sha256"]:
        raise SystemExit(f"{args.out} was trained with another vocab.txt; its numbers would mean other words")
    run = step_function(strategy, model, optimizer, args.seed)
    data = batches(args, facts, strategy, step)
    writer = tf.summary.create_file_writer(args.logs)
    while step < args.steps and not stop:
        started = time.monotonic()
        loss = float(run(next(data), tf.constant(step)))
        step += 1
        report(step, loss)
        if step % args.log_every == 0 or step == args.steps:
            print(f"step {step} loss {loss:.6f}", flush=True)
            with writer.as_default(step=step):
                tf.summary.scalar("loss", loss)
                tf.summary.scalar("learning_rate", optimizer.learning_rate)
        if step % args.save_every == 0 or step == args.steps or stop:
            saved = save(manager, writer, step)
        time.sleep(max(0.0, args.step_seconds - (time.monotonic() - started)))
    if step != saved:
        save(manager, writer, step)
    return 0 if step >= args.steps else STOPPED


def save(manager, writer, step):
    """
    Save under the step's number; return the step.
    """
    path = manager.save(checkpoint_number=step)
    writer.flush()
    print(f"saved {path}", flush=True)
    return step


def main():
    """
    Train; SIGTERM saves the step that is running, and leaves with 42.
    """
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    sys.exit(train(arguments(), stop))


if __name__ == "__main__":
    main()
