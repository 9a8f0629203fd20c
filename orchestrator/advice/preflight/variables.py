"""Variables of the job that do not hold what was meant."""

from collections.abc import Iterator

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.advice.preflight.finding import Hit, Level, rule
from orchestrator.contract.job_variables import unknown
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


@rule("env-name-unknown", Level.WARN)
def env_name_unknown(spec: Spec, _: Catalog, __: SourceFacts) -> Iterator[Hit]:
    """
    Look for `$NAME` in a value of `job.env` that stays as it is: `tpuctl` gives the job no such variable.

    The names are those of docs/job-environment.md. `$$NAME` says that the text is meant as it is.
    """
    for name, value in spec.job.env.items():
        for word in unknown(value):
            message = f"${word[:40]} stays as it is: tpuctl gives the job no variable of this name"
            yield Hit(f"job.env.{name}", message, "see docs/job-environment.md; for a dollar sign write $$")
