"""
Save once or twice with the real frameworks, each in a folder of its own below the folder that is named.

It runs in an environment with requirements.txt beside it, not in ours.
"""

import os
import sys
from pathlib import Path

os.environ.update(JAX_PLATFORMS="cpu", KERAS_BACKEND="jax", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
OUT = Path(sys.argv[1]).absolute()


def place(name):
    """Return the folder of one layout, as text."""
    (OUT / name).mkdir(parents=True, exist_ok=True)
    return str(OUT / name)


def jax_family():
    """Orbax in its kinds, flax before it."""
    import flax
    import jax.numpy as jnp
    import orbax.checkpoint as ocp
    from flax.training import checkpoints
    from orbax.checkpoint import v1
    from orbax.checkpoint.path import atomicity

    state = {"a": jnp.arange(1000.0), "step": jnp.array(3)}
    kinds = {
        "orbax": {},
        "orbax-prefix": {"step_prefix": "ckpt"},
        "orbax-fixed": {"step_format_fixed_length": 8},
        "orbax-commit-file": {"temporary_path_class": atomicity.CommitFileTemporaryPath},
    }
    for name, options in kinds.items():
        with ocp.CheckpointManager(place(name), options=ocp.CheckpointManagerOptions(**options)) as manager:
            manager.save(100, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
    saver = v1.training.Checkpointer(place("orbax-v1"))
    saver.save_pytree(100, state)
    saver.close()
    flax.config.update("flax_use_orbax_checkpointing", False)
    checkpoints.save_checkpoint(place("files-flax"), state, 100)
    flax.config.update("flax_use_orbax_checkpointing", True)
    checkpoints.save_checkpoint(place("orbax-flax"), state, 100, orbax_checkpointer=ocp.PyTreeCheckpointer())


def keras_family():
    """Every callback of Keras that saves."""
    import keras
    import numpy as np

    calls = keras.callbacks
    for one in (
        calls.BackupAndRestore(place("keras"), delete_checkpoint=False),
        calls.ModelCheckpoint(place("files-keras") + "/m-{epoch:02d}.keras"),
        calls.ModelCheckpoint(place("files-h5") + "/m-{epoch:02d}.weights.h5", save_weights_only=True),
        calls.OrbaxCheckpoint(place("orbax-keras")),
    ):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        model.fit(np.zeros((8, 4)), np.zeros((8, 2)), epochs=2, verbose=0, callbacks=[one])


def torch_family():
    """torch.save old and new, safetensors, torch.distributed.checkpoint, accelerate."""
    import torch
    import torch.distributed.checkpoint as dcp
    from accelerate import Accelerator
    from safetensors.torch import save_file

    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 100}
    torch.save(state, place("files-nanogpt") + "/ckpt.pt")
    torch.save(state, place("files-old-torch") + "/ckpt.pt", _use_new_zipfile_serialization=False)
    torch.save(state, place("files-numbered") + "/model_000100.pt")
    save_file(net.state_dict(), place("files-safetensors") + "/model-100.safetensors")
    dcp.save({"model": net.state_dict()}, checkpoint_id=place("dcp") + "/step-100")
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(net, optimizer)
    accelerator.save_state(place("accelerate") + "/step_100")


def lightning():
    """ModelCheckpoint as it is by default, and with save_last."""
    import lightning as pl
    import torch

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.layer(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=2)
    retained = pl.pytorch.callbacks.ModelCheckpoint(
        dirpath=place("files-lightning"), save_top_k=-1, save_last=True
    )
    for root, callbacks in ((place("files-lightning-logs"), []), (place("files-lightning"), [retained])):
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", enable_progress_bar=False, default_root_dir=root,
            callbacks=callbacks, logger=not callbacks,
        )  # fmt: skip
        trainer.fit(Model(), data)


def trainer():
    """Hugging Face: everything, an adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    shape = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **shape)
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}] * 8
    lora = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
    for name, wrap in (("hf", lambda one: one), ("hf-lora", lambda one: get_peft_model(one, lora))):
        arguments = TrainingArguments(
            place(name), max_steps=4, save_steps=2, report_to="none", use_cpu=True, disable_tqdm=True
        )
        Trainer(wrap(LlamaForCausalLM(config)), arguments, train_dataset=data).train()


for family in (jax_family, keras_family, torch_family, lightning, trainer):
    family()
