"""
Decide which notifications are due, from the facts of one pass.

A notification has the same id in every pass. So wherever a loop was killed, the next process derives the same
ids, and the outbox knows which were sent: none is sent twice, none is lost.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.contract.phase import Phase
from orchestrator.contract.secrets.redaction import masked
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import World
from orchestrator.domain.plan import Outcome
from orchestrator.domain.record import Record
from orchestrator.domain.spec import NotificationKind, Spec
from orchestrator.domain.text.hints import LOAD_CHECKPOINT
from orchestrator.errors import TpuctlError
from orchestrator.planning.ignored import ignored_text
from orchestrator.planning.uncommitted import FETCH, uncommitted_text, unsaved_seconds

BUDGET_WARNING = 0.8
"""Share of the budget after which a warning is sent."""


@dataclass(frozen=True)
class Notification:
    """One notification; *id* is the same in every pass, *at* is in seconds since the epoch."""

    id: str
    kind: str
    at: float
    deployment: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def sent_json(self) -> bytes:
        """Return the JSON that receivers get."""
        return _encoded({"schema": 1, **vars(self), "data": dict(self.data)})

    def to_json(self) -> bytes:
        """Return the JSON that is stored."""
        # An outbox may be read by another version: `event` is the kind, `text` the message.
        body = {"schema": 1, **vars(self), "data": dict(self.data)}
        body["event"], body["text"] = body.pop("kind"), body.pop("message")
        return _encoded(body)

    @classmethod
    def from_json(cls, data: bytes) -> "Notification":
        """Parse a stored notification; raise ValueError, KeyError or TypeError if *data* holds none."""
        body = json.loads(data)
        names, message = (str(body["id"]), str(body["event"])), str(body["text"])
        return cls(*names, float(body["at"]), str(body["deployment"]), message, dict(body["data"]))


def due(
    spec: Spec, world: World, record: Record, outcome: Outcome | None, message: str, usd_so_far: float
) -> tuple[Notification, ...]:
    """Return all notifications that are due, including those already sent, which the outbox drops by id."""
    # The id contains the start time: the next `up` has its own "up" and "done".
    lifetime = f"{spec.name}-{record.started_at:.0f}"
    found = (*_machines(spec, world, record), *_money(spec, usd_so_far), *_end(outcome, message, record))
    return tuple(
        # Secrets are masked: texts quote what machines report, and go to foreign services.
        Notification(f"{lifetime}-{mark}", kind, world.observed_at, spec.name, masked(text), data)
        for kind, mark, text, data in found
    )


def current_id(stored: str) -> str:
    """Return the id of today for a *stored* one: the ids of two ends had other words."""
    found = _EARLIER_END.search(stored)
    return f"{stored[: found.start()]}-{_EARLIER_WORDS[found[1]]}-{found[2]}" if found else stored


def stopped(spec: Spec, record: Record, error: TpuctlError, now: float) -> Notification:
    """Return the notification that *error* has stopped the loop; its id is the same for an hour and error code."""
    mark = f"{spec.name}-{record.started_at:.0f}-stopped-{error.code}-{now // 3600:.0f}"
    text = f"the watcher has stopped: {error.message} ({error.code}); what runs keeps running"
    return Notification(mark, "failed", now, spec.name, masked(text), {"code": error.code})


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, ensure_ascii=False).encode()


_EARLIER_WORDS = {"spent": Outcome.LIMIT_REACHED.value, "unclaimed": Outcome.UNCOMMITTED.value}
_EARLIER_END = re.compile(r"-(spent|unclaimed)-(\d+)$")
_Found = tuple[NotificationKind, str, str, dict[str, Any]]


def _machines(spec: Spec, world: World, record: Record) -> Iterator[_Found]:
    number, times = record.node.incarnation, record.node.preemptions
    if times:
        text = f"the TPU was taken away, for the {_nth(times)} time; another one is requested"
        yield "preempted", f"preempted-{times}", text, {"preemptions": times}
    heartbeats = world.heartbeats_of(number)
    if not heartbeats:
        return
    first = heartbeats[0]
    ignored = ignored_text(heartbeats)
    data = {"incarnation": number, "zone": record.node.zone, "step": first.step}
    if all(heartbeat.phase is Phase.RUN for heartbeat in heartbeats) and len(heartbeats) == first.workers:
        if times == 0:
            machines = "1 machine" if first.workers == 1 else f"{first.workers} machines"
            yield "up", "up", f"the job runs on {machines} in {record.node.zone}", data
        elif ignored:
            yield "resumed", f"resumed-{number}", f"the job runs again in {record.node.zone}", data
        elif first.resumed_from is not None:
            text = f"the job continues from step {first.resumed_from} in {record.node.zone}"
            yield "resumed", f"resumed-{number}", text, {**data, "resumed_from": first.resumed_from}
        else:
            text = f"the job begins again at step 0 in {record.node.zone}: no checkpoint was saved"
            yield "resumed", f"resumed-{number}", text, data
    yield from _stalled(spec, world, record, heartbeats)
    if ignored:
        yield "stalled", f"ignored-{number}", f"{ignored}; {LOAD_CHECKPOINT}", data
    if any(unsaved_seconds(heartbeat) for heartbeat in heartbeats):
        text = uncommitted_text(spec.job.checkpoint, heartbeats)
        if text:
            yield "stalled", f"unsaved-{number}", text, data


def _stalled(spec: Spec, world: World, record: Record, heartbeats: tuple[Heartbeat, ...]) -> Iterator[_Found]:
    """
    Yield a notification if no step or checkpoint was new for `watch.stall`.

    If the job prints nothing either, its agent starts it again.

    Its id changes at most once in that time, and is never based on a time before the TPU was requested.
    Otherwise a machine that reports a new time in each heartbeat would cause a notification for each.
    """
    moved = max((max(b.progress_at or 0.0, b.committed_at or 0.0) for b in heartbeats), default=0.0)
    running = any(heartbeat.phase is Phase.RUN for heartbeat in heartbeats)
    if running and moved and spec.watch.stall and world.observed_at - moved >= spec.watch.stall:
        text = f"no new step for {spec.watch.stall}; the last one was {heartbeats[0].step}"
        mark = max(moved, record.node.requested_at) // spec.watch.stall
        yield "stalled", f"stalled-{mark:.0f}", text, {"step": heartbeats[0].step}


def _money(spec: Spec, usd_so_far: float) -> Iterator[_Found]:
    budget = spec.watch.budget_usd
    if budget and usd_so_far >= BUDGET_WARNING * budget:
        text = (
            f"{usd_so_far:.2f} of {budget:g} USD are spent (estimate); at {budget:g} the machines are stopped"
        )
        yield "budget", f"budget-{budget:g}", text, {"usd": round(usd_so_far, 4), "budget_usd": budget}


def _end(outcome: Outcome | None, message: str, record: Record) -> Iterator[_Found]:
    mark = record.node.incarnation
    if outcome is Outcome.DONE:
        yield "done", f"done-{mark}", f"done: {message}", {}
    elif outcome is Outcome.UNCOMMITTED:
        text = f"not done: {message}; {FETCH} copies it"
        yield "failed", f"uncommitted-{mark}", text, {"outcome": outcome.value}
    elif outcome is Outcome.FAILED:
        yield "failed", f"failed-{mark}", f"failed: {message}", {}
    elif outcome is Outcome.LIMIT_REACHED:
        yield "limit-reached", f"limit-reached-{mark}", f"stopped: {message}", {}


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
