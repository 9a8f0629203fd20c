"""
A zombie: a worker that was paused, replaced, and goes on writing. It spoils no checkpoint.

Each schedule pauses the old incarnation in front of one of its requests, lets its replacement make some,
wakes the old one for some or for all of its own, and then lets both end. After each write to the bucket:
every checkpoint that counts is whole and one incarnation's own, the newest one is never older than before,
the old incarnation touches nothing of its replacement's, and it commits nothing once it could have observed that
it is replaced.

.ci/reliability plays thousands of schedules (TPUCTL_ZOMBIE_STRIDE, 1 is all); the normal suite some dozens.
"""

import itertools
import math
import random

import pytest

from orchestrator.agent.agreement.attempts import Attempt
from tests.kit.figures import record_figures
from tests.reliability.damage import depth
from tests.reliability.two_incarnations import Interleaving, quiet

STRIDE = depth("TPUCTL_ZOMBIE_STRIDE", 131)
FIGURES: dict[str, object] = {}


@pytest.fixture(scope="module", autouse=True)
def figures():
    """Print what the tests of this module have counted."""
    yield
    record_figures(
        "zombie",
        "A worker that wakes after its replacement (R15)",
        "Two incarnations of the real agent on one bucket, switched between requests. Late manifests are "
        "those whose look for a replacement came before there was one; they are whole, or they do not count.",
        dict(FIGURES),
    )


def saves(machine):
    """The old one goes on saving after step 20."""
    machine.context.committer.begin(1, 20)
    machine.train(20, 1)


def crashes(machine):
    """The old one's job crashes a second time from step 20, so it goes one checkpoint back."""
    last = Attempt(1, 20, 1, 1, "crash", 0, code=1, same=1)
    machine.train(machine.fail(last), 1)


def replaces(machine):
    """The new one starts from what it finds, and saves until it prunes what the old one saves late."""
    machine.train(machine.boot(), 3)


def schedules(interleaving, stride):
    """
    Return some of all (first, second, third): requests of the old one, of the new one, of the old one again.

    With a *stride* above 1 those run that pause right after a check for a replacement, and some others.
    """
    shared = interleaving.play([("g1", math.inf)])
    old, new = shared.requests["g1"], shared.requests["g2"]
    everything = [(*pair, math.inf) for pair in itertools.product(range(old + 1), range(new + 1))]
    dice = random.Random(0)
    mixed = [(first, second, dice.randint(1, old)) for first, second, _ in everything[1::2]]
    if stride == 1:
        return everything + mixed
    after_looks = itertools.product(shared.looks, (*range(0, new, 13), math.inf), (math.inf,))
    return [*after_looks, *everything[::stride], *mixed[::stride]]


def play(name, scenario, folder, keep=2):
    """Play the schedules of a scenario, and return what was wrong in some of them."""
    late, hollow, aside, bad = 0, 0, 0, []
    with quiet():
        interleaving = Interleaving(folder, {"g1": scenario, "g2": replaces}, keep)
        chosen = schedules(interleaving, STRIDE)
        for first, second, third in chosen:
            shared = interleaving.play([("g1", first), ("g2", second), ("g1", third)])
            late, hollow, aside = late + shared.late, hollow + shared.hollow, aside + shared.set_aside
            if shared.wrong:
                bad.append(((first, second, third), shared.wrong))
    FIGURES[f"{name}: schedules"] = len(chosen)
    FIGURES[f"{name}: late manifests"] = f"{late}, of which {hollow} without their files do not count"
    FIGURES[f"{name}: late set-asides"] = aside
    FIGURES[f"{name}: broken"] = len(bad)
    return bad[:3]


SCENARIOS = {
    "it saves": (saves, 2),
    "it saves, and its replacement keeps more": (saves, 5),
    "its job crashes": (crashes, 2),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_worker_that_wakes_after_its_replacement_spoils_nothing(name, tmp_path):
    """However both are interleaved, what the next start resumes from is whole and the newest."""
    scenario, keep = SCENARIOS[name]
    assert play(name, scenario, tmp_path, keep) == []
