"""What the articles of 2020 and 2021 use and today's versions no longer have."""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.advice.preflight.finding import Hit, Level, rule
from orchestrator.advice.preflight.words import commands
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

_XM: Final = "torch_xla.core.xla_model."
_RENAMED: Final = {
    f"{_XM}xrt_world_size": "torch_xla.runtime.world_size()",
    f"{_XM}get_ordinal": "torch_xla.runtime.global_ordinal()",
}
_CLASS: Final = re.compile(r"transformers\.((?:TF|Flax)[A-Z]\w*)")
_SPAWN: Final = "torch_xla.distributed.xla_multiprocessing.spawn"
_TORCH_XLA: Final = ("torch-xla",)
_TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")


@rule("removed-torch-xla", Level.WARN)
def removed_torch_xla(spec: Spec, _: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for what torch_xla 2.9 no longer has: xm.xrt_world_size, xm.get_ordinal, XRT_TPU_CONFIG, nprocs=8.

    Silent where torch_xla is pinned below 2.9. XRT_TPU_CONFIG is left alone for jobs on the VM, which get it.
    """
    if facts.pinned_below((2, 9), *_TORCH_XLA):
        return
    for code in facts.code:
        for name, new in _RENAMED.items():
            if name in code.names:
                text = f"{name.rpartition('.')[2]} is gone in torch_xla 2.9"
                yield Hit(code.where(code.names[name]), text, f"use {new}")
    for code, call in facts.calls({_SPAWN}):
        count = call.value("nprocs", 2)
        if isinstance(count, int) and count != 1:
            text = f"nprocs={count} is a ValueError in torch_xla 2.9: only 1 or None"
            yield Hit(
                code.where(call.line), text, "leave nprocs out: one process for each core is the default"
            )
    for where, text in commands(spec, facts):
        found = re.search(r"xla_spawn\.py\b.*--num_cores[= ](\d+)", text)
        if found and found[1] != "1":
            said = f"--num_cores {found[1]} becomes nprocs={found[1]}, a ValueError in torch_xla 2.9"
            yield Hit(where, said, "start with torch_xla.launch, or leave nprocs out of xla_spawn.py")
        if "XRT_TPU_CONFIG" in text and spec.job.run_on == "tpu":
            said = "XRT_TPU_CONFIG does nothing: XRT is gone in torch_xla 2.9"
            yield Hit(where, said, "remove it; tpuctl sets PJRT_DEVICE=TPU")


@rule("removed-tensorflow", Level.WARN)
def removed_tensorflow(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for tf.estimator, which today's TensorFlow (2.21) no longer has, not even below tf.compat.v1.

    Silent where TensorFlow is pinned below 2.16.
    """
    if facts.pinned_below((2, 16), *_TENSORFLOW):
        return
    for code in facts.code:
        for name, line in code.names.items():
            if name.startswith(("tensorflow.estimator", "tensorflow.compat.v1.estimator")):
                yield Hit(
                    code.where(line),
                    f"{name.replace('tensorflow', 'tf', 1)} is gone in TensorFlow 2.21",
                    "use Keras, or pin tensorflow==1.15.5 with Python 3.7",
                )
                break


@rule("removed-transformers", Level.WARN)
def removed_transformers(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[Hit]:
    """
    Look for what transformers 5 no longer has: TF and Flax classes, `from_tf`, load_tf_weights_in_bert.

    Silent where transformers is pinned below 5.
    """
    if facts.pinned_below((5,), "transformers"):
        return
    fix = "pin transformers==4.57.6, or use the PyTorch class"
    for code in facts.code:
        for name, line in code.names.items():
            found = _CLASS.match(name)
            gone = (
                found[1]
                if found
                else "load_tf_weights_in_bert"
                if name.endswith(".load_tf_weights_in_bert")
                else ""
            )
            if gone and name.startswith("transformers."):
                yield Hit(code.where(line), f"{gone} is gone in transformers 5", fix)
    for code, call in facts.calls(methods={"from_pretrained"}):
        if call.keywords.get("from_tf") is True:
            yield Hit(code.where(call.line), "from_tf=True is gone in transformers 5", fix)
