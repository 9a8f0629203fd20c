"""Apply all rules to a deployment file."""

from collections.abc import Collection

from orchestrator.config.rules import (
    bounds,
    fleet,
    job,
    loop,
    memory,
    names_and_zones,
    notify,
    request,
    secret_names,
    sidecar,
)
from orchestrator.config.rules.rule import SettingFinding
from orchestrator.config.setting_types import SettingPath
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

RULES = (
    *bounds.RULES,
    *names_and_zones.RULES,
    *request.RULES,
    *job.RULES,
    *secret_names.RULES,
    *memory.RULES,
    *sidecar.RULES,
    *loop.RULES,
    *notify.RULES,
    *fleet.RULES,
)


def run_rules(spec: Spec, catalog: Catalog, broken: Collection[SettingPath] = ()) -> list[SettingFinding]:
    """Return what the rules find in *spec*; rules that read one of the *broken* settings are skipped."""
    return [
        finding
        for rule in RULES
        if not any(rule.hindered_by(path) for path in broken)
        for finding in rule.find(spec, catalog)
    ]
