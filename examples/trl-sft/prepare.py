"""
Make what a model hub would give: a small GPT-2 and its tokenizer in ./model, conversations in ./data.
"""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

HERE = Path(__file__).parent
END = "<|endoftext|>"
CHAT = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"


def conversations(count, seed=0):
    """
    Return sums as questions and answers, in a fixed order.
    """
    chance = random.Random(seed)
    for _ in range(count):
        a, b = chance.randrange(100), chance.randrange(100)
        yield [
            {"role": "user", "content": f"What is {a} plus {b}?"},
            {"role": "assistant", "content": f"{a} plus {b} is {a + b}."},
        ]


def main():
    """
    Write both folders.
    """
    talks = list(conversations(2000))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    lines = [message["content"] for talk in talks for message in talk]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=512, special_tokens=[END], initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=END)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(HERE / "model")
    set_seed(0)
    end = tokenizer.eos_token_id
    size = {"n_positions": 128, "n_embd": 64, "n_layer": 2, "n_head": 4}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, **size)
    GPT2LMHeadModel(config).save_pretrained(HERE / "model")
    (HERE / "data").mkdir(exist_ok=True)
    with (HERE / "data/train.jsonl").open("w") as file:
        for talk in talks:
            file.write(json.dumps({"messages": talk}) + "\n")


if __name__ == "__main__":
    main()
