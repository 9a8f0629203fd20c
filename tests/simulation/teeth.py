"""
Switch each mechanism off, one at a time: some life must break then, or the simulation proves nothing.

`python -m tests.simulation.teeth [PART OF A NAME]` says for each after how many lives it was noticed.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from orchestrator.cloud import sights
from orchestrator.core import decide, decide_node, end, history, names, recovery
from orchestrator.core.plan import Plan
from orchestrator.core.world import Phase, Present
from orchestrator.engine import act, down, observe
from tests.simulation import machines, world
from tests.simulation.life import live


def _errors_are_absence(look):
    try:
        return Present(tuple(look()))
    except Exception:
        return Present(())


def _any_end(found):
    beats = found.heartbeats.value if isinstance(found.heartbeats, Present) else ()
    return any(b.phase in {Phase.DONE, Phase.STOPPED} for b in beats)


def _no_label(spec, role, incarnation=None):
    return {names.ROLE_LABEL: role}


def _newest_removed(complete, keep):
    return tuple(sorted({one.step for one in complete}, reverse=True))


def _forgetful(prepare):
    def wrong(self, change):
        zones = self._record.history.zones_used
        prepare(self, change)
        self._record.update(lambda h: replace(h, zones_used=zones, spans=()))

    return wrong


SWITCHES = {
    "errors are no absence (M7)": ("I7", [(sights, "listed", _errors_are_absence)]),
    "an absence is seen twice (M7)": (
        "I7", [(decide_node, "SECOND_WITNESS", 0.0), (decide, "SECOND_WITNESS", 0.0)]),
    "labels (M2)": ("I", [(names, "labels", _no_label)]),
    "the record of zones before a create (M1)": (
        "I", [(act.Actor, "_prepare", _forgetful(act.Actor._prepare))]),
    "the sweep of older incarnations (M3)": ("I4", [(decide_node, "deleting", lambda *_: True)]),
    "the end deletes the machines (M6)": (
        "I4", [(decide, "wind_down", lambda world, history, outcome, reason: Plan((), (), outcome, reason))]),
    "down waits for what is on its way (M6)": ("I1", [(down.Sweep, "_on_their_way", lambda self: ())]),
    "signals are no success": ("I8", [(history, "finished", _any_end), (end, "finished", _any_end)]),
    "fencing of older incarnations (M5)": (
        "I2", [(machines.Gang, "_fenced", lambda self: self.over)]),
    "retention keeps the newest": ("I3", [(machines, "disposable", _newest_removed)]),
    "back-off (M11)": ("I5", [(recovery, "create_gate", lambda *_: 0.0)]),
    "the budget": ("I6", [(world.Controller, "spent", lambda *_: 0.0)]),
    "zones of earlier files are looked at (M3)": (
        "I", [(observe, "zones_to_look_at", lambda spec, history: spec.tpu.zones),
              (down, "zones_to_look_at", lambda spec, history: spec.tpu.zones)]),
}  # fmt: skip
"""Mechanism -> (the invariant that must break, or any of them; what is patched)."""


def bite(name, seeds):
    """Return the first life that breaks with one mechanism switched off, and how many were lived."""
    wanted, patches = SWITCHES[name]
    with ExitStack() as stack:
        for where, what, wrong in patches:
            stack.enter_context(patch.object(where, what, wrong))
        for count, seed in enumerate(seeds, 1):
            life = live(seed)
            if life.problem.startswith(wanted):
                return life, count
    return None, len(seeds)


def main():
    """Bite with all, or with those whose name holds the argument; fail when one goes unnoticed."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    unnoticed = 0
    for name in (n for n in SWITCHES if part in n):
        life, count = bite(name, range(60))
        unnoticed += life is None
        print(
            f"without {name}: " + (f"life {count}, {life.problem[:90]}" if life else "UNNOTICED"), flush=True
        )
    return unnoticed


if __name__ == "__main__":
    sys.exit(main())
