"""Memory of one core: model, gradients, optimizer and batch against the catalogue."""

from collections.abc import Iterator
from typing import Final

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.advice.preflight.finding import Hit, Level, rule
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

STATE_VALUES: Final = {"adam": 2, "momentum": 1, "adafactor": 0, "sgd": 0}
"""Values that an optimizer keeps for each parameter; adafactor's rows and columns are too few to count."""
_BYTES: Final = {"fp32": 4, "bf16": 2}
_GIB: Final = 2**30
_ROOM: Final = 0.9


@rule("core-memory", Level.WARN, Level.STOP, Level.NOTE)
def core_memory(spec: Spec, catalog: Catalog, _: SourceFacts) -> Iterator[Hit]:
    """
    Look for model, gradients, optimizer and batch that do not fit into one core; cores share no memory.

    v2 and v3 have two cores on a chip (8 and 16 GiB each), later ones are counted by chip. Parameters and
    optimizer alone too large: stop. With gradients and batch too large: warning; above 90 %: note. Needs
    `job.memory.params_millions`.
    """
    need, kind = spec.job.memory, catalog.accelerator(spec.tpu.type)
    if need.params_millions is None or kind is None or need.shards < 1:
        return
    room = kind.hbm_gib_per_chip / kind.devices_per_chip
    copy = need.params_millions * 1e6 * _BYTES[need.dtype] / need.shards / _GIB
    state = copy * STATE_VALUES[need.optimizer]
    batch = (need.activations_gb or 0.0) * 1e9 / _GIB
    total = 2 * copy + state + batch
    if total <= room * _ROOM:
        return
    core = "core" if kind.devices_per_chip == 2 else "chip"
    parts = f"model {copy:.1f} + gradients {copy:.1f} + {need.optimizer} {state:.1f} + batch {batch:.1f}"
    message = f"{parts} = {total:.1f} GiB; a {kind.generation} {core} has {room:g} GiB"
    if need.activations_gb is None:
        message += " (the batch is not stated)"
    level = Level.STOP if copy + state > room else Level.WARN if total > room else Level.NOTE
    yield Hit(
        "job.memory", message, "split the state over cores (shards), use bf16, or a smaller batch", level
    )
