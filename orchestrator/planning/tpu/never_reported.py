"""
Give up TPUs that come up and never report: they cost as much as others and train nothing.

The startup script reports as its first act. If it is silent for some minutes, it does not run, may not write
to the bucket, or has no route to it. A script that has reported and then falls silent gets more time. The
next TPU usually works. If several do not, requesting more of them only wastes the grant.
"""

from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.domain import names
from orchestrator.domain.bucket_grants import settling
from orchestrator.domain.first_seen import of_node
from orchestrator.domain.machines.capacity import after_refusal
from orchestrator.domain.observation import NodeState, Present, World
from orchestrator.domain.plan import Change, Kind, Outcome
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import Spec
from orchestrator.domain.updated import updated

SILENT_TIMEOUT = 360.0
"""Seconds that a READY TPU has until its startup script reports; other tools use the same (docs/facts.md 1.3)."""
START_TIMEOUT = 1200.0
"""Seconds that a READY TPU has until a worker reports; the startup script gives up after 600 s."""
SILENT_TPUS = 3
"""Silent TPUs in a row after which the deployment gives up; as many in one zone raise that zone's timeout."""
SILENT_TIME = 3600.0
"""Seconds that this must have lasted, so that a short network outage ends no deployment."""


@dataclass(frozen=True)
class LateHeartbeat:
    """
    A READY TPU that is given up because no worker has reported in *seconds*.

    *script_reported* says whether its startup script has.
    """

    seconds: float
    script_reported: bool

    @property
    def text(self) -> str:
        """Return the sentence about it, without a full stop."""
        what = "has begun and" if self.script_reported else "does not run, or"
        waited = f"no worker has reported in {self.seconds / 60:.0f} min"
        return f"{waited}; its startup script {what} has not come through"


class AllSilent(Enum):
    """Why nothing is expected to report any more."""

    TPUS = "tpus"
    """SILENT_TPUS in a row have not."""
    VM = "vm"
    """The job runs on the VM, which has not."""
    ENDED = "ended"
    """The record says that the deployment has failed, and no report contradicts it."""

    def text(self, record: Record) -> str:
        """Return the reason in words, from the *record* that it was found in."""
        if self is AllSilent.ENDED:
            return record.message
        if self is AllSilent.VM:
            return "the TPU has been READY for an hour and the VM has never reported"
        return (
            f"{len(record.silence.never_reported)} TPUs in a row came up and never reported: their startup "
            "script does not come through (may the machines' service account use the bucket? do they have a "
            "way to it?)"
        )


def nothing_reported(world: World) -> bool:
    """Return whether neither a worker nor a startup script of the newest TPU is known to have reported."""
    return no_worker_reported(world) and not world.boot_heartbeats


def no_worker_reported(world: World) -> bool:
    """Return whether no agent of the newest TPU is known to have reported."""
    return isinstance(world.heartbeats, Present) and not world.heartbeats.value


def often_silent(spec: Spec, record: Record, zone: str) -> bool:
    """Return whether SILENT_TPUS of *zone* were given up without a report."""
    # A TPU without a span was never billed, and counts for every zone. Three silent TPUs in one zone point to the
    # zone or to our own script, and replacing more of them at once proves nothing.
    zones = {span.name: span.zone for span in record.spans if span.kind is Kind.NODE}
    here = [n for n, _ in record.silence.never_reported if zones.get(names.node_name(spec, n), zone) == zone]
    return len(here) >= SILENT_TPUS


def late_heartbeat(spec: Spec, world: World, record: Record) -> LateHeartbeat | None:
    """
    Return how a READY TPU has failed to report in time, which is given up; None if it may continue.

    A job on the VM gains nothing from another TPU.
    """
    waited = _ready_for(world, record)
    if spec.job.run_on == "vm" or not no_worker_reported(world):
        return None
    silent = nothing_reported(world) and waited >= SILENT_TIMEOUT and _silence_tells(spec, world, record)
    if not silent and waited < START_TIMEOUT:
        return None
    return LateHeartbeat(waited, script_reported=bool(world.boot_heartbeats))


def _silence_tells(spec: Spec, world: World, record: Record) -> bool:
    """
    Return whether the silence of a startup script proves that it does not run.

    It proves nothing for scripts of earlier versions of tpuctl, which report late; while a new role may not
    be in force everywhere; while the node's health is TIMEOUT, because it may be warming up; and in a zone
    where many silent TPUs were replaced, which therefore gets more time.
    """
    node = current_node(world, record)
    settled = not settling(record.bucket.granted_at, world.observed_at)
    heartbeat_first = record.node.incarnation in record.silence.heartbeat_at_boot
    warm = node is None or not node.timed_out
    return heartbeat_first and settled and warm and not often_silent(spec, record, record.node.zone)


def _ready_for(world: World, record: Record) -> float:
    return world.observed_at - record.first_seen.get(
        of_node(record.node.incarnation, NodeState.READY), world.observed_at
    )


def with_boot_heartbeat(record: Record, number: int) -> Record:
    """Return the record in which TPU *number* is expected to report at boot."""
    # Numbers of deleted TPUs are dropped, or the list would grow with every TPU.
    known = {record.node.incarnation, *(candidate.incarnation for candidate in record.race.candidates)}
    reporting = (known & set(record.silence.heartbeat_at_boot)) | {number}
    return updated(record, silence=updated(record.silence, heartbeat_at_boot=tuple(sorted(reporting))))


def as_never_reported(change: Change, world: World) -> Change:
    """Return the deletion of the newest TPU, marked if it has never reported."""
    return replace(change, never_reported=no_worker_reported(world))


def update_first_heartbeats(record: Record, world: World) -> Record:
    """Return the record without silent TPUs once a worker reports."""
    reported = world.known_heartbeats
    return updated(record, silence=updated(record.silence, never_reported=())) if reported else record


def with_silent_tpu(record: Record, change: Change, now: float) -> Record:
    """
    Return the record with the silent TPU that *change* deletes, counted once.

    Its zone counts as one that has just refused, so the next TPU is requested elsewhere if possible.
    """
    number = change.incarnation or 0
    if not change.never_reported or any(known == number for known, _ in record.silence.never_reported):
        return record
    # Like a refusal: the zone has provided a machine that does not work.
    history = after_refusal(record.capacity_history, change.zone, record.node.type, now)
    silent = (*record.silence.never_reported, (number, now))
    return replace(record, silence=replace(record.silence, never_reported=silent), capacity_history=history)


def all_silent(spec: Spec, world: World, record: Record) -> AllSilent | None:
    """Return why no further TPU is requested, or why the present one waits in vain; None while there is hope."""
    if spec.job.run_on == "vm":
        if nothing_reported(world) and _ready_for(world, record) >= SILENT_TIME:
            return AllSilent.VM
        # While the TPU is being deleted it is not READY any more, so the record decides. If a report has ended the
        # job, that report decides.
        return AllSilent.ENDED if record.outcome is Outcome.FAILED and not world.known_heartbeats else None
    given_up = record.silence.never_reported
    if len(given_up) < SILENT_TPUS or world.observed_at - given_up[0][1] < SILENT_TIME:
        return None
    return AllSilent.TPUS
