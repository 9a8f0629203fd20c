"""
Turn a checkpoint of train.py into a folder that Hugging Face's transformers loads.

Writes model.safetensors, config.json, vocab.txt, tokenizer_config.json and, as a test for the reader,
probe.json: one sentence's tokens and the logits that TensorFlow gives for them.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
NORM = {"gamma": "weight", "beta": "bias"}
DENSE = {"kernel": "weight", "bias": "bias"}

# Ours, Hugging Face's, and what their parts are called. {} is the number of the layer.
LAYER = (
    ("model/encoder/{}/query", "bert.encoder.layer.{}.attention.self.query", DENSE),
    ("model/encoder/{}/key", "bert.encoder.layer.{}.attention.self.key", DENSE),
    ("model/encoder/{}/value", "bert.encoder.layer.{}.attention.self.value", DENSE),
    ("model/encoder/{}/attended", "bert.encoder.layer.{}.attention.output.dense", DENSE),
    ("model/encoder/{}/attended_norm", "bert.encoder.layer.{}.attention.output.LayerNorm", NORM),
    ("model/encoder/{}/intermediate", "bert.encoder.layer.{}.intermediate.dense", DENSE),
    ("model/encoder/{}/output_dense", "bert.encoder.layer.{}.output.dense", DENSE),
    ("model/encoder/{}/output_norm", "bert.encoder.layer.{}.output.LayerNorm", NORM),
)
REST = (
    ("model/words", "bert.embeddings.word_embeddings", {"embeddings": "weight"}),
    ("model/places", "bert.embeddings.position_embeddings", {"embeddings": "weight"}),
    ("model/kinds", "bert.embeddings.token_type_embeddings", {"embeddings": "weight"}),
    ("model/norm", "bert.embeddings.LayerNorm", NORM),
    ("model/head", "cls.predictions.transform.dense", DENSE),
    ("model/head_norm", "cls.predictions.transform.LayerNorm", NORM),
)


def names(layers):
    """
    Yield (name in the checkpoint, name at Hugging Face) of every weight.
    """
    numbered = [
        (ours.format(number), theirs.format(number), parts)
        for number in range(layers)
        for ours, theirs, parts in LAYER
    ]
    for ours, theirs, parts in [*numbered, *REST]:
        for our_part, their_part in parts.items():
            yield f"{ours}/{our_part}{VALUE}", f"{theirs}.{their_part}"
    yield f"model/head_bias{VALUE}", "cls.predictions.bias"


def convert(reader, layers):
    """
    Return the weights under Hugging Face's names. Raises SystemExit when one is left over or missing.
    """
    import numpy as np

    table = dict(names(layers))
    stored = reader.get_variable_to_shape_map()
    there = {name for name in stored if name.startswith("model/") and ".OPTIMIZER_SLOT" not in name}
    if there != set(table):
        lacking, extra = sorted(set(table) - there), sorted(there - set(table))
        raise SystemExit(f"not a checkpoint of this model: it lacks {lacking[:3]}, has besides {extra[:3]}")
    weights = {}
    for ours, theirs in table.items():
        value = reader.get_tensor(ours)
        # Keras keeps a dense kernel as (in, out), torch as (out, in).
        weights[theirs] = np.ascontiguousarray(value.T if "/kernel/" in ours else value)
    return weights


def probe(path, config, vocab):
    """
    Return one sentence with a hidden word, and the logits of TensorFlow's model for it.
    """
    import model as bert
    import tensorflow as tf
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocab), lowercase=True)
    ids = tokenizer.encode("return the number of [MASK] in the list .").ids
    network = bert.Bert(config)
    rows = tf.constant([ids])
    places = tf.range(len(ids))[None]
    network(rows, tf.ones_like(rows), places)
    tf.train.Checkpoint(model=network).restore(path).expect_partial().assert_existing_objects_matched()
    return {"ids": ids, "logits": network(rows, tf.ones_like(rows), places).numpy()[0].tolist()}


def main():
    """
    Convert the newest checkpoint of a folder, or the one that is named.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--checkpoint", default="checkpoints", help="a folder, or a prefix like out/ckpt-120")
    parser.add_argument("--config", default="config.json", help="the config that it was trained with")
    parser.add_argument("--vocab", default="data/vocab.txt", help="the vocabulary that it was trained with")
    parser.add_argument("--out", default="hf", help="the folder to make")
    args = parser.parse_args()
    import tensorflow as tf
    from safetensors.numpy import save_file

    path = tf.train.latest_checkpoint(args.checkpoint) or args.checkpoint
    config = json.loads(Path(args.config).read_text())
    weights = convert(tf.train.load_checkpoint(path), config["num_hidden_layers"])
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(args.config, out / "config.json")
    shutil.copyfile(args.vocab, out / "vocab.txt")
    (out / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}, indent=2) + "\n"
    )
    (out / "probe.json").write_text(json.dumps(probe(path, config, args.vocab)))
    print(f"{out}: {len(weights)} tensors from {path}")


if __name__ == "__main__":
    main()
