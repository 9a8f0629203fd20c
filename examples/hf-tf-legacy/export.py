"""
Write the newest checkpoint as a folder that today's transformers loads, which has no TensorFlow any more.
"""

import argparse
import json
import shutil
from pathlib import Path

import train  # first: it chooses the Keras

# isort: split
import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file
from transformers.modeling_tf_pytorch_utils import (
    TransposeType,
    convert_tf_weight_name_to_pt_weight_name,
)


def weights(model):
    """
    Return the weights under PyTorch's names and in its layout: (out, in) where Keras has (in, out).
    """
    found = {}
    for weight in model.weights:
        name, transpose = convert_tf_weight_name_to_pt_weight_name(weight.name, tf_weight_shape=weight.shape)
        value = weight.numpy()
        found[name] = np.ascontiguousarray(value if transpose is TransposeType.NO else value.T)
    return found


def main():
    """
    Load the checkpoint on one device and write model.safetensors, config.json and the vocabulary.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--checkpoints", default="checkpoints", help="the folder of the checkpoints")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that prepare.py made")
    parser.add_argument("--width", type=int, default=64, help="as in training")
    parser.add_argument("--layers", type=int, default=2, help="as in training")
    parser.add_argument("--out", type=Path, default=Path("model"), help="the folder to make")
    args = parser.parse_args()
    newest = tf.train.latest_checkpoint(args.checkpoints)
    if not newest:
        raise SystemExit(f"error: there is no checkpoint in {args.checkpoints}")
    model = train.network(args, json.loads((args.data / "data.json").read_text()))
    status = tf.train.Checkpoint(model=model).restore(newest)
    status.expect_partial().assert_existing_objects_matched()
    args.out.mkdir(parents=True, exist_ok=True)
    found = weights(model)
    save_file(found, args.out / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = ["BertForMaskedLM"]
    model.config.save_pretrained(args.out)
    shutil.copyfile(args.data / "vocab.txt", args.out / "vocab.txt")
    print(f"{args.out}: {len(found)} tensors from {newest}")


if __name__ == "__main__":
    main()
