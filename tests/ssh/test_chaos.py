"""
SSH over a network that goes bad: every toxic in every phase of a delivery, and a push cut everywhere.

After each: the machine holds the old tree or the new one, whole; the attempt ended within its bound; the next
delivery succeeds, and exactly one job runs. `TPUCTL_CHAOS=full` plays all pairs and all cuts.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kit.figures import record_figures
from tests.ssh.chaos_machine import GATES, ChaosMachine, DeliveryLab
from tests.ssh.toxics import BANNER, EXCHANGE, HARMLESS, LATER, LOGIN, TOXICS

FULL = os.environ.get("TPUCTL_CHAOS") == "full"
BOUND, SLACK = 3.0, 6.0

KB = 1024
PHASES: dict[str, "str | int"] = {
    "banner": BANNER, "key exchange": EXCHANGE, "login": LOGIN, "data": 200 * KB,
    **dict.fromkeys(GATES, LATER),
}  # fmt: skip
EACH_ONCE = (
    ("latency", "banner"), ("down", "key exchange"), ("timeout", "login"), ("bandwidth", "data"),
    ("reset_peer", "commit"), ("black_hole", "switch"), ("slicer", "begin"), ("limit_data", "output"),
    ("slow_close", "exit"),
)  # fmt: skip
PAIRS = tuple((toxic, phase) for phase in PHASES for toxic in TOXICS) if FULL else EACH_ONCE


@dataclass(frozen=True)
class End:
    """Say how one delivery over a bad network ended."""

    case: tuple[str, str]
    error: str
    seconds: float
    switched: bool


def survive(machine: ChaosMachine, case: tuple[str, str], bundle: tuple[Path, str]) -> End:
    """Deliver over the armed proxy, then over a good one; check what must hold after each, and at the very end."""
    old = machine.tree()
    error, seconds = machine.deliver(bundle, BOUND)
    observed = machine.tree()
    assert machine.struck(), f"{case}: the moment never came"
    assert seconds < BOUND + SLACK, (case, seconds)
    machine.heal()
    again, _ = machine.deliver(bundle, BOUND)
    new = machine.tree()
    assert (again, new["main.py"] != old["main.py"], len(new)) == ("", True, 2), case
    assert observed in (old, new), f"{case}: a mixed tree {observed}"
    assert error or observed == new, f"{case}: said to be done, and is not"
    machine.let_old_connections_go()
    machine.until(lambda: not machine.starting(), f"{case}: the job has begun")
    machine.until(lambda: not machine.leftovers(), f"{case}: nothing temporary is left")
    assert machine.tree() == new, f"{case}: what was cut has changed the tree later"
    assert (len(machine.jobs()), len(machine.starts())) == (1, 1), f"{case}: not one job: {machine.starts()}"
    machine.stop()
    return End(case, error, seconds, observed == new)


def test_each_toxic_in_each_phase_of_a_delivery(lab: DeliveryLab) -> None:
    """Harmless ones delay it only; all others end it in time, with an error, and the next one repairs all."""
    bundle = lab.bundle("new", 400_000)

    def one(machine: ChaosMachine, case: tuple[str, str]) -> End:
        toxic, phase = case
        machine.arm(toxic, PHASES[phase], allowed=40)
        if phase in GATES:
            machine.strike_at(phase)
        return survive(machine, case, bundle)

    begun = time.monotonic()
    ends = lab.play(PAIRS, one)

    for end in ends:
        assert bool(end.error) == (end.case[0] not in HARMLESS), end
    record_figures(
        "toxics", "A network that goes bad", "A delivery of code and the start of the job over SSH, by "
        "`pytest tests/ssh/test_chaos.py`; every connection is real.", {
            "Toxics x phases": f"{len(TOXICS)} x {len(PHASES)}, {len(ends)} pairs played",
            "Deliveries that ended with an error, then succeeded": sum(bool(end.error) for end in ends),
            "Of those: the tree was the new one already": sum(e.switched for e in ends if e.error),
            "Mixed trees, second jobs, leftovers": 0,
            "Longest attempt (bound of silence)": f"{max(e.seconds for e in ends):.1f} s ({BOUND:g} s)",
            "Wall time": f"{time.monotonic() - begun:.0f} s",
        },
    )  # fmt: skip


def test_a_push_of_4_mb_cut_every_64_kb(lab: DeliveryLab) -> None:
    """The link ends after so many bytes, whatever is in them."""
    bundle = lab.bundle("large", 4_000_000)
    size = bundle[0].stat().st_size
    cuts = list(range(64 * KB, size, 64 * KB)) if FULL else [64 * KB, size // 2, size]

    def one(machine: ChaosMachine, case: tuple[str, str]) -> End:
        machine.arm("limit_data", BANNER, allowed=int(case[1]))
        return survive(machine, case, bundle)

    begun = time.monotonic()
    ends = lab.play([("limit_data", str(cut)) for cut in cuts], one)

    assert all(end.error and not end.switched for end in ends)
    record_figures(
        "cuts", "A push that is cut", "By the same run.", {
            "Cuts of a push of 4 MB": len(ends),
            "Old tree whole after it, new tree whole after the next push": len(ends),
            "Longest attempt": f"{max(end.seconds for end in ends):.1f} s",
            "Wall time": f"{time.monotonic() - begun:.0f} s",
        },
    )  # fmt: skip
