"""
What makes a deployment file wrong although every value has the right type.
"""

from collections.abc import Collection

from orchestrator.core import (
    check_job,
    check_loop,
    check_memory,
    check_notify,
    check_place,
    check_request,
    check_secrets,
    check_sidecars,
)
from orchestrator.core.catalog import Catalog
from orchestrator.core.rule import Problem
from orchestrator.core.spec import Spec

RULES = (
    *check_place.RULES,
    *check_request.RULES,
    *check_job.RULES,
    *check_secrets.RULES,
    *check_memory.RULES,
    *check_sidecars.RULES,
    *check_loop.RULES,
    *check_notify.RULES,
)


def check(spec: Spec, catalog: Catalog, broken: Collection[str] = ()) -> list[Problem]:
    """
    Return all problems of *spec*; rules that read one of the *broken* keys are left out.
    """
    return [
        problem
        for rule in RULES
        if not any(rule.hindered_by(key) for key in broken)
        for problem in rule.find(spec, catalog)
    ]
