"""Show a deployment's status as text of at most 80 columns, or as wide as the terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import click

from orchestrator.app.status.text import (
    advice_texts,
    checkpoint_text,
    end_texts,
    first_command,
    job_text,
    next_pass_text,
    running_texts,
    share_done,
    start_text,
    state_text,
    stopped_with_tpu,
    worker_text,
)
from orchestrator.cli.console import columns, print_json, wrapped
from orchestrator.cli.views.paint import (
    BAR,
    BOLD,
    DIM,
    END,
    bar,
    colour_of,
    draws_blocks,
    state,
    wants_colour,
)
from orchestrator.domain.lease import watch_command
from orchestrator.domain.status import DeploymentState, DeploymentStatus, ResourceStatus, WorkerStatus
from orchestrator.domain.text.amounts import progress_percent, span_text, usd_range_text, usd_text
from orchestrator.domain.text.clean_text import clean
from orchestrator.domain.text.phase_words import phase_words

WIDTH = 80
FEW = 4
"""Up to this number, each worker has a line of its own; of more only the slowest has one."""
DIGEST = len("sha256:") + 12
"""Characters of a digest that are shown; `--json` has all."""
LABEL = 13
"""Characters before the text of a line."""
_INDENT = "  "
OLD_SNAPSHOT = "--fresh asks the cloud"
NO_WATCHER = "preempted TPUs will not be replaced"


def show(status: DeploymentStatus, *, unbilled: bool, wide: bool, as_json: bool) -> None:
    """Print a status once, as text or JSON."""
    if as_json:
        print_json("status", status.as_dict())
        return
    colour = wants_colour()
    for line in fitted(status, unbilled=unbilled, wide=wide, colour=colour):
        # Not decided by click, which would remove colours that FORCE_COLOR requests.
        click.echo(clean(line, colours=True), color=colour)


def fitted(status: DeploymentStatus, *, unbilled: bool, wide: bool, colour: bool) -> list[str]:
    """Return the lines for this terminal, of at most 80 characters unless *wide*."""
    width = columns()
    size = width if wide else min(WIDTH, width or WIDTH)
    rows = status_rows(status, unbilled=unbilled, width=size, wide=wide, drawn=bool(width))
    return painted(rows) if colour else [row.text for row in rows]


class LineType(Enum):
    """What a line of the status shows; it determines the colours."""

    HEAD = "deployment"
    RESOURCE = "resource"
    FIELD = "label and text"


@dataclass(frozen=True)
class StatusLine:
    """
    One line of the screen; *label* is "" for a continuation, a resource's state begins at *state_at*.

    *colour* is that of the deployment's state, for the lines that show it; *phases* says that the text holds
    the phase of the job or of a worker.
    """

    text: str
    line_type: LineType
    label: str = ""
    state_at: int = 0
    colour: str = ""
    phases: bool = False


@dataclass(frozen=True)
class Field:
    """A label and its text, before they are aligned and wrapped; a drawing has no label."""

    label: str
    text: str

    def aligned(self) -> str:
        """Return both in two columns."""
        # At least one blank, even after a long sidecar name.
        return f"{self.label:<{LABEL - 1}} {self.text}"


class _State(Field):
    """The line that shows the deployment's state."""


class _Phase(Field):
    """A line that shows the phase of the job or of one worker."""


def painted(rows: Sequence[StatusLine]) -> list[str]:
    """Return the lines in colour: the deployment bold, labels dim, states by their meaning."""
    return [_painted(row) for row in rows]


def _painted(row: StatusLine) -> str:
    if row.line_type is LineType.HEAD:
        return f"{BOLD}{row.text}{END}"
    if row.line_type is LineType.RESOURCE:
        return row.text[: row.state_at] + state(row.text[row.state_at :])
    label, text = row.text[:LABEL], row.text[LABEL:]
    if row.colour:
        text = f"{row.colour}{text}{END}"
    if row.phases:
        text = state(text)
    if row.label == "next":
        text = f"{BOLD}{text}{END}"
    return f"{DIM}{label}{END}{text}"


def status_rows(
    status: DeploymentStatus, *, unbilled: bool, width: int = WIDTH, wide: bool = False, drawn: bool = False
) -> list[StatusLine]:
    """
    Return the status lines, wrapped at *width* (0: not at all).

    *unbilled* is true on the local cloud; *wide* gives every worker a line; *drawn* adds a progress bar.
    """
    job, drawing = _job(status), _bar(status, width) if drawn else []
    lines = [_State("state", state_text(status)), *job[:1], *drawing, *job[1:]]
    lines += [
        *_cost(status, unbilled=unbilled),
        *_deadline(status),
        *_uncommitted(status),
        *_workers(status, wide=wide),
        *_sidecars(status),
        *_end(status),
    ]
    if status.source.by != "cloud":
        age = span_text(status.source.age_s)
        lines.append(Field("as of", f"{age} ago, by {status.source.by} ({OLD_SNAPSHOT})"))
    return [
        StatusLine(_head(status), LineType.HEAD),
        *_resources(status.resources, width),
        *(
            StatusLine(
                text,
                LineType.FIELD,
                "" if number else line.label,
                colour=colour_of(status.state) if isinstance(line, _State) else "",
                phases=isinstance(line, _Phase) and not number,
            )
            for line in lines
            for number, text in enumerate(wrapped([line.aligned()], width, " " * LABEL))
        ),
    ]


def _resources(rows: Sequence[ResourceStatus], width: int) -> Iterator[StatusLine]:
    for row, line in zip(rows, resource_lines(rows), strict=True):
        for number, text in enumerate(wrapped([line], width, _INDENT)):
            # The state is the last column, and may be wrapped to a line of its own.
            at = len(_INDENT) if number else len(line) - len(_state(row))
            yield StatusLine(text, LineType.RESOURCE, state_at=at)


def _head(status: DeploymentStatus) -> str:
    if status.state is DeploymentState.DELETED:
        return status.name
    count = status.preemptions
    number = f"TPU #{status.incarnation}{_unused(status.unused_incarnations)}, " if status.incarnation else ""
    return f"{status.name}  {number}{count} preemption{'' if count == 1 else 's'}"


def _unused(numbers: Sequence[int]) -> str:
    """Return why the number of the TPU is larger than that of the TPUs that ran."""
    few = ", ".join(f"#{number}" for number in numbers[:FEW])
    return f" ({few}{' ...' if len(numbers) > FEW else ''} never ran)" if numbers else ""


def _bar(status: DeploymentStatus, width: int) -> list[Field]:
    """Return a bar if the last step is known, else no line."""
    share = None if status.state.without_tpu else share_done(status)
    size = min(BAR, max(10, (width or WIDTH) - LABEL - 10))
    drawn = "" if share is None else f"{bar(share, size, blocks=draws_blocks())} {progress_percent(share)}"
    return [Field("", drawn)] if drawn else []


def _job(status: DeploymentStatus) -> list[Field]:
    lines: list[Field] = [_Phase("job", job_text(status))] if status.workers else []
    if status.workers:
        formats = sorted({w.format_name for w in status.workers if w.format})
        of_format = f" (format: {', '.join(formats)})" if formats else ""
        aside = f"; {status.aside_message}" if status.aside_message else ""
        lines.append(Field("checkpoint", f"{checkpoint_text(status) or 'none yet'}{of_format}{aside}"))
        lines += [Field("saving", status.saves.message)] if status.saves else []
    elif found := checkpoint_text(status):
        lines.append(Field("checkpoint", found))
    # More than one image, briefly, after a push.
    images = sorted({w.image for w in status.workers if w.image})
    lines += [
        Field("image", f"{name}@{digest[:DIGEST]}")
        for name, _, digest in (one.partition("@") for one in images)
    ]
    return [*lines, *_unreported(status)]


def _unreported(status: DeploymentStatus) -> list[Field]:
    """Return why step or loss are missing although the job has saved; one that starts has no time to print yet."""
    silent = [w for w in status.workers if w.phase == "run" and w.saved_in_attempt and w.loss is None]
    if not silent or any(w.loss is not None for w in status.workers):
        return []
    what = "no loss" if silent[0].step is not None else "neither step nor loss"
    how = "job.progress tells it how (docs/job-environment.md)"
    return [Field("progress", f"the job prints {what} that tpuctl knows; {how}")]


def _cost(status: DeploymentStatus, *, unbilled: bool) -> list[Field]:
    billed = "nothing is billed" if unbilled else "not a bill"
    limit = _limit(status)
    if status.unpriced:
        least = f"at least {usd_text(status.usd)} so far"
        return [Field("cost", f"{least}{limit}; no price is known for: {', '.join(status.unpriced)}")]
    sum_text = usd_range_text(status.usd, status.upper_usd)
    return [Field("cost", f"about {sum_text} so far (an estimate, {billed}){limit}")]


def _limit(status: DeploymentStatus) -> str:
    """Return the budget, which the higher sum uses up; "" without one."""
    if status.budget_usd is None:
        return ""
    return f"; the budget of {status.budget_usd:g} USD counts the higher sum"


def _uncommitted(status: DeploymentStatus) -> list[Field]:
    """Return lines about files that nothing commits, and about those in the bucket beside checkpoints."""
    found = {
        "not loaded": status.ignored_message, "uncommitted": status.uncommitted_message,
        "rescued": status.rescued_message,
    }  # fmt: skip
    return [Field(label, text) for label, text in found.items() if text]


def _deadline(status: DeploymentStatus) -> list[Field]:
    """Return lines about the deadline, the forecast and the class of the TPU; none without a deadline."""
    deadline = status.deadline
    if not deadline:
        return []
    on = {"wait": "", "spot": ", on spot"}.get(deadline.mode, ", on demand")
    return [Field("deadline", f"{deadline.due}, {deadline.forecast}{on}")]


def _workers(status: DeploymentStatus, *, wide: bool) -> list[Field]:
    workers = status.workers
    # What a machine that is gone reported last is not what it does.
    lost = status.state.without_tpu or stopped_with_tpu(status)
    if wide or len(workers) <= FEW:
        return [_worker(worker, lost=lost, failing=status.failing_message) for worker in workers]
    counts = Counter(w.phase for w in workers)
    phases = ", ".join(f"{phase_words(phase)} ({count})" for phase, count in counts.items())
    last = _worker(max(workers, key=lambda w: w.heartbeat_age_s or 0.0), failing=status.failing_message)
    reported = "last reports: " if lost else ""
    return [Field("workers", f"{reported}{phases}; oldest report: {last.label}: {last.text}")]


def _worker(worker: WorkerStatus, *, lost: bool = False, failing: str = "") -> Field:
    return _Phase(f"worker {worker.worker}", worker_text(worker, lost=lost, failing=failing))


def _sidecars(status: DeploymentStatus) -> list[Field]:
    places = {"vm": "VM", "tpu": "TPU"}
    return [
        Field(s.name, f"on the {places[s.on]}, port {s.port} (`tpuctl tunnel {s.name}`)")
        for s in status.sidecars
    ]


def _end(status: DeploymentStatus) -> list[Field]:
    """Return lines about the watcher, the end, and the next steps."""
    if not status.up and not status.outcome and not _watcher_runs(status):
        return [Field("next", start_text(status))]
    lines = [Field("watcher", text)] if (text := watcher_text(status)) else []
    cure = _watcher_cure(status)
    if cure:
        nets = [net for net in status.safety_nets if net.name == "tpu"]
        lines += [Field("safety net", f"{net.title}: {net.message}") for net in nets]
    wait = next_pass_text(status)
    when_text = wait or (
        "when `tpuctl watch` or `tpuctl down` runs" if status.outcome else "when a watcher runs"
    )
    # What a person can do comes before what happens only then.
    lines += [Field("next", text) for text in advice_texts(status)]
    if status.upcoming and (first := first_command(status, cure[1] if cure else "")):
        lines.append(Field("next", f"run: {first}"))
    # What is waited for is the case already: only the next check of it is to come.
    label, again = ("waiting", "checked again ") if status.waits_for else ("next", "")
    after = f" ({again}{when_text})" if when_text else ""
    for one in status.upcoming:
        text = f"{one.text}{after}"
        if one.in_s is not None:
            # It ends after its own seconds, and the next check would only be a second number. Without a watcher
            # nothing happens then.
            text = one.text if wait else f"{replace(one, in_s=None).text} ({when_text})"
        lines.append(Field(label, text))
    if not status.upcoming and not status.outcome:
        lines += [Field("next", text) for text in running_texts(status, cure[1] if cure else "")]
    if status.outcome and not status.upcoming:
        lines += [Field("next", text) for text in end_texts(status)]
    if status.ttl_remaining_s is not None:
        lines.append(Field("expires", f"in {span_text(status.ttl_remaining_s)} at the latest (watch.ttl)"))
    return lines


def watcher_text(status: DeploymentStatus) -> str:
    """Return a text about the watcher, "" if the deployment is over and needs none."""
    watcher = status.watcher
    if watcher is not None and _watcher_runs(status):
        where = "on the VM" if watcher.on == "vm" else f"`tpuctl {watcher.command}` of {watcher.who}"
        return f"{where}, last sign of life {span_text(watcher.renewed_age_s)} ago"
    cure = _watcher_cure(status)
    if cure is None:
        return ""
    if status.refusal_hint and not cure[0]:
        return "not running"
    return f"not running{f' ({cure[0]})' if cure[0] else ''}: {NO_WATCHER}. Run: {cure[1]}"


def _watcher_runs(status: DeploymentStatus) -> bool:
    watcher = status.watcher
    # A VM that is not RUNNING runs no loop, however recent the lease's last renewal is.
    return watcher is not None and watcher.alive and (watcher.on != "vm" or _vm_state(status) == "RUNNING")


def _vm_state(status: DeploymentStatus) -> str:
    return next((row.state for row in status.resources if row.kind == "vm"), "")


def _watcher_cure(status: DeploymentStatus) -> tuple[str, str] | None:
    """Return why no watcher runs ("" if unknown) and the command to start one; None if none is needed."""
    if status.outcome or _watcher_runs(status):
        return None
    was_on_vm, vm = status.watcher is not None and status.watcher.on == "vm", _vm_state(status)
    on_vm = was_on_vm or status.watch_on_vm
    if on_vm and vm != "RUNNING":
        return f"the VM is {vm}", "tpuctl up"
    return "the one on the VM is silent" if was_on_vm else "", watch_command(on_vm=on_vm)


def resource_lines(rows: Sequence[ResourceStatus]) -> list[str]:
    """Return a line for each resource, in columns; a long reason is last, where it may wrap."""
    table = [row.shown for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(texts, widths, strict=True)), _state(row)])
        for texts, row in zip(table, rows, strict=True)
    ]


def _state(row: ResourceStatus) -> str:
    # Google's word sounds like the end of the VM, but it can be started again.
    stopped = row.kind == "vm" and row.state == "TERMINATED"
    return "TERMINATED (stopped)" if stopped else row.state
