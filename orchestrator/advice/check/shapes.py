"""Check shapes: XLA compiles one program for each set of shapes, and shapes must not depend on values."""

from collections.abc import Iterator
from typing import Final

from orchestrator.advice.check.code import Call, Code
from orchestrator.advice.check.findings import RawFinding, SourceFacts, rule
from orchestrator.advice.check.python_values import UNKNOWN
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec

_TF: Final = frozenset({"tensorflow.unique", "tensorflow.unique_with_counts", "tensorflow.boolean_mask"})
_TORCH: Final = frozenset({"torch.nonzero", "torch.argwhere", "torch.masked_select", "torch.unique"})
_TORCH_METHODS: Final = frozenset({"nonzero", "masked_select"})
_JAX: Final = frozenset(
    {"jax.numpy.unique", "jax.numpy.nonzero", "jax.numpy.argwhere", "jax.numpy.flatnonzero"}
)
_CHAIN: Final = ("tensorflow.data.", "map()", "shuffle()", "repeat()", "interleave()", "cache()", "filter()")
_COLLATORS: Final = frozenset(
    f"transformers.{name}"
    for name in ("DataCollatorWithPadding", "DataCollatorForSeq2Seq", "DataCollatorForTokenClassification")
)
_MASK_FIX: Final = "compute all elements and multiply by the mask; divide by the mask's sum"


@rule("dynamic-shape", Level.WARN)
def dynamic_shape(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for results whose size depends on values, which a TPU cannot compile inside a step.

    tf.unique, tf.boolean_mask, tf.where with one argument, torch.nonzero, masked_select, jnp.unique without
    size. XLA on a CPU compiles some of them by now, so trying it there proves nothing. Torch files count
    only where the job uses torch_xla or torch_tpu.
    """
    torch = facts.uses("torch_xla", "torch_tpu")
    for code in facts.code:
        for call in code.calls:
            if _is_dynamic(code, call, torch=torch):
                name = call.name.lstrip(".")
                message = (
                    f"{name}: the size of the result depends on values, so 1 compiled program cannot do it"
                )
                yield RawFinding(code.where(call.line), message, _MASK_FIX)


@rule("mask-index", Level.NOTE)
def mask_index(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for elements picked by a comparison (`x[labels >= 0]`) in files that use TensorFlow or torch_xla.

    A note: the line may well work on numpy arrays, before the data reaches the TPU.
    """
    for code in facts.code:
        if code.modules & {"tensorflow", "torch_xla", "torch_tpu"}:
            for line in code.masks:
                message = "x[mask] has as many elements as the mask has ones: 1 compile for each count"
                yield RawFinding(code.where(line), message, _MASK_FIX)


@rule("last-batch", Level.WARN)
def last_batch(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for loaders without `drop_last` or `drop_remainder`: a smaller last batch is a second compile.

    DataLoader counts where the job uses torch_xla or torch_tpu, `.batch` where a tf.data pipeline has no
    `.repeat`.
    """
    message = "the last batch may be smaller: 2 shapes, 2 compiles, and uneven work over the cores"
    torch = facts.uses("torch_xla", "torch_tpu")
    for code, call in facts.calls({"torch.utils.data.DataLoader"}) if torch else ():
        given = call.keywords.get("batch_size", 1) is None  # the data set makes the batches
        own = given or call.value("batch_sampler", 4) is not None
        if not own and call.value("drop_last", 8) in (None, False):
            yield RawFinding(code.where(call.line), message, "add drop_last=True")
    for code, call in facts.calls(methods={"batch", "padded_batch"}):
        if (
            "tensorflow" in code.modules
            and _is_pipeline(code, call)
            and call.value("drop_remainder", 1 if call.method == "batch" else 3) in (None, False)
        ):
            yield RawFinding(code.where(call.line), message, "add drop_remainder=True")


@rule("padding", Level.WARN)
def padding(_: Spec, __: Catalog, facts: SourceFacts) -> Iterator[RawFinding]:
    """
    Look for texts padded to the longest of each batch: nearly each batch has a compile of its own.

    `padding=True` or "longest" of a tokenizer, and collators that pad, without `pad_to_multiple_of`.
    Measured: 4 shapes are 4 traces.
    """
    for code in facts.code:
        if not code.modules & {"transformers", "tokenizers"}:
            continue
        for call in code.calls:
            longest = call.keywords.get("padding") in (True, "longest") and call.method != "from_pretrained"
            collates = call.name in _COLLATORS and call.keywords.get("padding", True) in (True, "longest")
            if (longest or collates) and call.value("pad_to_multiple_of") is None:
                message = (
                    "pads to the longest text of a batch: 1 compile for each length (4 shapes, 4 traces)"
                )
                yield RawFinding(
                    code.where(call.line), message, 'add pad_to_multiple_of=64, or padding="max_length"'
                )


def _is_dynamic(code: Code, call: Call, *, torch: bool) -> bool:
    if call.name in _TF:
        return True
    if call.name in _JAX or (call.name == "jax.numpy.where" and len(call.args) == 1):
        return not call.spread and call.value("size") is None
    if call.name in ("tensorflow.where", "torch.where"):
        alone = len(call.args) == 1 and not call.spread and not {"x", "y"} & set(call.keywords)
        return alone and (torch or call.name == "tensorflow.where")
    if not torch or "torch" not in code.modules:
        return False
    return call.name in _TORCH or (
        call.method in _TORCH_METHODS and not call.name.startswith(("numpy.", "jax."))
    )


def _is_pipeline(code: Code, call: Call) -> bool:
    """Return whether `.batch` belongs to a tf.data pipeline that ends; one with `.repeat` does not."""
    chained = any(part in call.name for part in _CHAIN) or call.name.split(".")[0] in ("dataset", "ds")
    known = set(call.keywords) <= {
        "batch_size",
        "padded_shapes",
        "padding_values",
        "drop_remainder",
        "num_parallel_calls",
        "deterministic",
        "name",
    }
    sized = known and (bool(call.keywords) or (bool(call.args) and _may_be_size(call.args[0])))
    repeated = any(other.method == "repeat" and other.scope == call.scope for other in code.calls)
    return chained and sized and not repeated


def _may_be_size(value: object) -> bool:
    return value is UNKNOWN or (isinstance(value, int) and not isinstance(value, bool))
