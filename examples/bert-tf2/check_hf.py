"""
Load what tf2hf.py made with transformers, and compare its logits with TensorFlow's.

Needs torch and transformers, which train.py does not.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import BertForMaskedLM, BertTokenizer

TOLERANCE = 1e-4


def main(folder):
    """
    Leave with an error when a weight is missing or left over, or a logit differs.
    """
    model, found = BertForMaskedLM.from_pretrained(folder, output_loading_info=True)
    # The output matrix is the word table itself, so it is in no file.
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    problems = {kind: sorted(map(str, found[kind])) for kind in kinds}
    if any(problems.values()):
        sys.exit(f"{folder}: {problems}")
    probe = json.loads((Path(folder) / "probe.json").read_text())
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([probe["ids"]])).logits[0]
    difference = float((logits - torch.tensor(probe["logits"])).abs().max())
    if difference > TOLERANCE:
        sys.exit(f"{folder}: logits differ by {difference:.2g}")
    tokenizer = BertTokenizer.from_pretrained(folder)
    best = logits[probe["ids"].index(tokenizer.mask_token_id)].argmax()
    print(f"{folder}: no missing keys, no unexpected keys; logits differ by at most {difference:.2g}")
    print(f"{tokenizer.decode(probe['ids'])}: {tokenizer.convert_ids_to_tokens(int(best))}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "hf")
