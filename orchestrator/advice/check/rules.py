"""List all rules in the order in which they are reported, and render their manual."""

from typing import Final

from orchestrator.advice.check import (
    device,
    exposure,
    installs,
    lost_writes,
    machine_size,
    needs,
    saves,
    shapes,
)
from orchestrator.advice.check.findings import CheckFinding, CheckRule, SourceFacts
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec

RULES: Final[tuple[CheckRule, ...]] = (
    exposure.open_notebook,
    exposure.secret_in_env,
    exposure.key_in_source,
    exposure.wide_account,
    saves.marker_never_written,
    saves.backup_deleted,
    saves.no_save,
    saves.no_load,
    saves.late_save,
    lost_writes.checkpoint_dir_unused,
    saves.relative_save,
    lost_writes.save_elsewhere,
    lost_writes.write_lost,
    lost_writes.bucket_not_a_folder,
    lost_writes.summary_writer_gs,
    needs.program_missing,
    needs.hollow_resume,
    needs.data_excluded,
    needs.requirements_file_missing,
    needs.missing_requirement,
    needs.env_name_unknown,
    needs.doubtful_setting,
    saves.save_interval,
    device.core_memory,
    machine_size.disk_room,
    machine_size.data_room,
    machine_size.fairseq_memory,
    machine_size.tokenizer_memory,
    installs.unpinned_torch,
    installs.torch_xla_pair,
    installs.python_pin,
    installs.installed_again,
    installs.removed_torch_xla,
    installs.removed_tensorflow,
    installs.removed_transformers,
    shapes.dynamic_shape,
    shapes.mask_index,
    shapes.last_batch,
    shapes.padding,
    device.host_sync,
    device.jit_compile,
    device.multiple_of_8,
)
_ORDER: Final = (Level.STOP, Level.WARN, Level.NOTE)


def run_rules(spec: Spec, catalog: Catalog, facts: SourceFacts) -> tuple[CheckFinding, ...]:
    """Return everything that the rules find, the worst first."""
    found = [finding for each in RULES for finding in each(spec, catalog, facts)]
    # A stable sort: within a level the order of the rules stays.
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.level)))


def manual() -> str:
    """Return the table of all rules as Markdown, for docs/check.md."""
    rows = [f"| `{each.id}` | {_levels(each)} | {_text(each)} |" for each in RULES]
    return "\n".join((_HEAD, *rows)) + "\n"


def _levels(each: CheckRule) -> str:
    return ", ".join(level.value for level in _ORDER if level in each.levels)


def _text(each: CheckRule) -> str:
    words = " ".join((each.find.__doc__ or "").split()).removeprefix("Look for ")
    return words.replace("|", "\\|")


_HEAD: Final = """\
# What `tpuctl check` looks for

`tpuctl check` reads the deployment file and the source folder, and says what is likely to hurt on a TPU:
which rule, where, the number, and what to change. It needs no network and starts nothing. It exits with 2
when a finding is of level stop, else with 0. `tpuctl plan` shows the same at its end and never fails
because of it. With `--cloud local` both also say which packages of the extra `local` are not installed
(`local-packages`, a stop).

What it cannot see it does not guess: write the figures of the job into `job.memory` and `job.checkpoint`
when you know them.
Rules about code read it without running it, so they can miss what a run would show.

| rule | level | what it looks for |
| --- | --- | --- |"""
