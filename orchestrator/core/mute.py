"""
TPUs that come up and never say a word: they cost as much as others, and train nothing.

Their startup script does not come through: it may not read the bucket, or the machine has no way to it. The
next TPU mostly does better. When none does, asking for more of them only spends the grant.
"""

from dataclasses import replace

from orchestrator.core.capacity import after_refusal
from orchestrator.core.history import History, noted
from orchestrator.core.plan import Change
from orchestrator.core.spec import Spec
from orchestrator.core.world import Present, World

START_DEADLINE = 1200.0
"""Seconds that a READY TPU has until one of its workers reports; the startup script gives up after 600 s."""
MUTE_TPUS = 3
"""TPUs in a row that may be given up without a report."""
MUTE_TIME = 3600.0
"""Seconds that this must have lasted: a network that is down for a while ends no deployment."""
MUTE_VM = "the TPU has been READY for an hour and the VM has never reported"
MUTE = "mute"
"""Key of a deletion's details: the TPU has never reported."""


def unheard(world: World) -> bool:
    """
    Say whether no worker of the newest TPU has ever reported, as far as one can know.
    """
    return isinstance(world.heartbeats, Present) and not world.heartbeats.value


def late_to_report(spec: Spec, world: World, history: History) -> str:
    """
    Say why a READY TPU is given up that has not reported in time; empty when it may go on.

    Of a job on the VM another TPU makes no difference.
    """
    waited = _ready_for(world, history)
    if spec.job.run_on == "vm" or not unheard(world) or waited < START_DEADLINE:
        return ""
    return f"no worker has reported in {waited / 60:.0f} min; its startup script has not come through"


def _ready_for(world: World, history: History) -> float:
    return world.seen_at - history.sightings.get(f"node:{history.incarnation}:ready", world.seen_at)


def given_up_unheard(change: Change, world: World) -> Change:
    """
    Return the deletion of the newest TPU, marked when it has never reported.
    """
    if not unheard(world):
        return change
    return replace(change, details={**change.details, MUTE: "it has never reported"})


def learn_mute(history: History, world: World) -> History:
    """
    Forget the mute ones as soon as one speaks.
    """
    spoken = isinstance(world.heartbeats, Present) and world.heartbeats.value
    return noted(history, mute=()) if spoken else history


def with_mute(history: History, change: Change, now: float) -> History:
    """
    Return the record with the TPU that *change* gives up, once, if it has never reported.

    Its zone counts as one that has just refused: the next TPU is asked for elsewhere, if it can be.
    """
    number = change.incarnation or 0
    if MUTE not in change.details or any(known == number for known, _ in history.mute):
        return history
    places = after_refusal(history.places, change.zone, history.type, now)
    return replace(history, mute=(*history.mute, (number, now)), places=places)


def all_mute(spec: Spec, world: World, history: History) -> str:
    """
    Say why no further TPU is asked for, or the one that is there waits in vain; empty while there is hope.
    """
    if spec.job.run_on == "vm":
        vain = unheard(world) and _ready_for(world, history) >= MUTE_TIME
        # While the TPU goes it is READY no more, so the record has to tell.
        return MUTE_VM if vain or history.reason == MUTE_VM else ""
    if len(history.mute) < MUTE_TPUS or world.seen_at - history.mute[0][1] < MUTE_TIME:
        return ""
    return (
        f"{len(history.mute)} TPUs in a row came up and never reported: their startup script does not come "
        "through (may the machines' service account use the bucket? do they have a way to it?)"
    )
