"""Divide each recovery by its parts: from the last report of a lost TPU to the first new step of the next one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from orchestrator.domain.events import Event, EventKind, change_word
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.start_times import prepared_at, ready_at

PARTS = ("detect", "decide", "create", "fetch", "unpack", "setup", "restore", "compile")
HEADINGS = {**{part: part for part in PARTS}, "fetch": "code", "unpack": "packages", "compile": "first step"}
"""What people read above each part; `--json` has the part's name."""
LEGEND = (
    "detect: from the last report of the lost TPU until its end is seen; decide:",
    "until the new TPU is requested, with any wait for quota or capacity; create:",
    "until it boots; code: it gets the job's code and tpuctl's; packages: it gets",
    "those of an earlier TPU; setup: it runs job.setup (0: not needed); restore: it",
    "gets the rest of the checkpoint; first step: start, imports, data, compiling",
)
"""Explains the parts, in lines of at most 78 columns."""


@dataclass(frozen=True)
class Recovery:
    """
    One recovery, in seconds by part: to the first new step of the TPU *incarnation*.

    detect: from the last sign of life until the preemption is observed; decide: until the create call, with
    any wait for quota or capacity; create: until the first line of the new machine's startup script (the cloud's
    part); fetch: agent and code; unpack: what an earlier machine installed and compiled; setup: the setup
    command, 0 if none ran; restore: the rest of the checkpoint; compile: from then to the job's first new step,
    mostly imports, data and XLA's compile. *parts_s* is empty if they are not known, *total_s* is None; *message*
    says why. The programs are as in `Heartbeat`.
    """

    incarnation: int
    parts_s: dict[str, float] = field(default_factory=dict)
    total_s: float | None = None
    xla_programs_restored: int | None = None
    xla_programs_compiled: int | None = None
    message: str = ""


def recoveries_of(
    heartbeats: Sequence[Heartbeat], events: Sequence[Event], begun: Collection[int] = ()
) -> tuple[Recovery, ...]:
    """
    Return a recovery for each TPU that replaced one, from the last heartbeats of the workers 0.

    *begun* has the TPUs with which `up` started or restarted the deployment. A TPU that made no step and was not
    preempted either replaced nothing: it lost a race, or has only begun.
    """
    known = {one.incarnation: one for one in heartbeats}
    preempted = {one.data.get("incarnation") for one in events if one.kind == EventKind.PREEMPTED}
    trained = {one.incarnation for one in heartbeats if one.step is not None}
    numbers = sorted(trained | {one for one in preempted if isinstance(one, int)})
    # What follows the last one may not have made a step yet, or have failed before it.
    numbers += sorted(one for one in known if numbers and numbers[-1] in preempted and one > numbers[-1])[-1:]
    return tuple(
        _recovery(before, after, known, events)
        for before, after in pairwise(numbers)
        if not any(before < first <= after for first in begun)
    )


def without_row(recoveries: Sequence[Recovery], preemptions: int) -> str:
    """Return a sentence about preemptions that have no recovery, "" if each has one."""
    missing = preemptions - len(recoveries)
    if missing <= 0:
        return ""
    which = "1 preemption has" if missing == 1 else f"{missing} preemptions have"
    return f"{which} no row: no TPU has reported since, or `tpuctl up` started anew"


def _recovery(
    before: int, after: int, heartbeats: Mapping[int, Heartbeat], events: Sequence[Event]
) -> Recovery:
    """Return the recovery from one incarnation to the next, with a message if its parts are not known."""
    lost, new = heartbeats.get(before), heartbeats.get(after)
    if new is None or (new.step is None and not new.trainings):
        return Recovery(after, message="it made no step")
    times, attempt = _first_start(new)
    trained = new.trainings
    first = trained[0].began_at if trained else times.get("first_step")
    observed = time_of(events, EventKind.PREEMPTED, before)
    created = time_of(events, change_word(Kind.NODE, Verb.CREATE), after)
    last_sign = observed if lost is None else lost.updated
    total = None if first is None or last_sign is None else max(0.0, first - last_sign)
    if attempt > 1:
        return Recovery(after, total_s=total, message="its first start made no step")
    if not times:
        return Recovery(
            after, total_s=total, message="the times of its first start were replaced by those of a later one"
        )
    if created is None or last_sign is None or not {"boot", "fetched", "spawned", "first_step"} <= set(times):
        return Recovery(after, total_s=total, message="not all of its times are known")
    observed = created if observed is None else observed
    ready = ready_at(times) or times["fetched"]
    began = min(ready, times.get("setup_began", ready))
    unpacks = min(began, times["unpack_began"]) if "unpacked" in times and "unpack_began" in times else began
    marks = (
        last_sign,
        observed,
        created,
        times["boot"],
        max(times["boot"], unpacks),
        max(times["boot"], began),
        ready,
        max(ready, prepared_at(times) or ready),
        times["first_step"],
    )
    spans = [max(0.0, b - a) for a, b in pairwise(marks)]
    parts = dict(zip(PARTS, spans, strict=True))
    return Recovery(after, parts, sum(spans), new.xla_programs_restored, new.xla_programs_compiled)


def _first_start(heartbeat: Heartbeat) -> tuple[Mapping[str, float], int]:
    """Return the times of the first attempt that made a step on a machine, {} if unknown, and its number."""
    trained = heartbeat.trainings
    attempt = trained[0].attempt if trained else heartbeat.attempt
    # An older agent has no first times, and those of a second attempt are no recovery.
    return heartbeat.first_timings or ({} if heartbeat.trained else heartbeat.timings), attempt


def time_of(events: Sequence[Event], kind: str, incarnation: int) -> float | None:
    """Return when the first event of a kind about one TPU was, None without one."""
    return next((e.at for e in events if e.kind == kind and e.data.get("incarnation") == incarnation), None)
