"""Define the rules for the job's declared memory."""

from collections.abc import Iterator
from math import isfinite

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


def _amounts(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    need = spec.job.memory
    amounts = {
        "job.memory.params_millions": need.params_millions,
        "job.memory.activations_gb": need.activations_gb,
        "job.memory.text_gb": need.text_gb,
        "job.checkpoint.save_pause": spec.job.checkpoint.save_pause,
    }
    for key, amount in amounts.items():
        if amount is not None and not (isfinite(amount) and amount >= 0):
            yield SettingFinding(key, f"{amount:g} is not an amount", "use 0 or more, or leave it out")


RULES = (
    SettingRule(
        (
            "job.memory.params_millions",
            "job.memory.activations_gb",
            "job.memory.text_gb",
            "job.checkpoint.save_pause",
        ),
        _amounts,
    ),
)
