"""
Journals of real deployments, cut off at every byte: they load, and nothing is made twice after them.

Each journal is written by a deployment that is preempted, refused, killed, taken down and brought up again as
its seed says. .ci/reliability takes 20 of them (TPUCTL_JOURNALS).
"""

import random

import pytest

from orchestrator.contract.bucket.object_names import HEARTBEAT, JOURNAL, RECORD
from orchestrator.domain.observation import NodeState
from orchestrator.engine.records.rebuild_record import _entry, rebuilt
from orchestrator.engine.records.record_format import stored_values
from orchestrator.errors import TpuctlError
from tests.engine.engine_lab import OTHER_ZONE, ZONE, EngineLab, one_zone_spec
from tests.kit.figures import record_figures
from tests.reliability.damage import depth
from tests.reliability.test_torn_state import store_of

JOURNALS = depth("TPUCTL_JOURNALS", 1)
FIGURES: dict[str, int] = {}
CREATE = "tpu.nodes.create"


@pytest.fixture(scope="module", autouse=True)
def figures():
    """Print what the tests of this module have counted."""
    yield
    record_figures(
        "journals",
        "Journals cut off at any byte (R10)",
        "Journals of deployments with random runs. Each is cut at every byte and loaded; at some of the "
        "cuts the record is lost too, and the next `up` finds what lives by its labels.",
        dict(FIGURES),
    )


class JournalledRun:
    """A deployment with a run drawn from a seed, and what its journal holds in the order of writing."""

    def __init__(self, seed, folder):
        self.dice = random.Random(seed)
        self.spec = one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE])
        self.lab = EngineLab(folder)
        self.lab.up(self.spec)
        for _ in range(self.dice.randint(2, 6)):
            self.dice.choice([self.preempted, self.refused, self.killed, self.down_and_up])()
        self.controller = self.lab.controller(self.spec)
        self.controller.up()
        self.store = store_of(self.lab)
        self.names = sorted(self.lab.objects(JOURNAL), key=lambda name: name.split("/")[-1])
        self.entries = {name: self.lab.get(name) for name in self.names}

    def preempted(self):
        self.preempt()
        self.lab.up(self.spec)

    def preempt(self):
        """Take the node away and let the time of its notice pass."""
        for name, node in self.lab.nodes().items():
            if node is NodeState.READY:
                self.lab.cloud.preempt(name, notice=self.dice.random() < 0.5)
        self.lab.wait(90)

    def refused(self):
        self.lab.cloud.fail_next(CREATE, [self.dice.choice(["stockout", "quota exceeded"])])
        self.preempted()

    def killed(self):
        self.preempt()
        self.lab.controller(self.spec).one_pass()

    def down_and_up(self):
        self.lab.controller(self.spec).deletion().machines()
        self.lab.up(self.spec)

    def keep(self, entries):
        """Leave these entries of the journal in the bucket, and no other."""
        for name in self.lab.objects(JOURNAL):
            self.store.delete(name)
        for name, data in entries.items():
            self.lab.put(name, data)

    def machines(self):
        """Return what lives, and how often each kind of machine was made or deleted."""
        calls = {m: n for m, n in self.lab.mutations().items() if not m.startswith("storage")}
        return list(self.lab.nodes()), list(self.lab.vms()), calls


@pytest.fixture(scope="module", params=range(JOURNALS))
def run_once(request, tmp_path_factory):
    """Simulate a run once for all tests of this module."""
    return JournalledRun(request.param, tmp_path_factory.mktemp(f"journal-{request.param}"))


@pytest.fixture
def run(run_once):
    """Return a deployment with a journal; what a test does to the journal is undone."""
    run_once.lab.answers()
    yield run_once
    run_once.keep(run_once.entries)


def numbers(entries):
    """Return the incarnations that the whole entries ask for."""
    return [int(name_of) for name_of in (body.get("incarnation") or 0 for body in entries if body)]


def test_a_journal_cut_at_any_byte_loads(run):
    """A cut entry is left out and all before it count: the number asked for last is never a wrong one."""
    for name in run.lab.objects(HEARTBEAT):
        run.store.delete(name)
    intents = [name for name in run.names if name.endswith(".intent.json")]
    offsets = 0
    run.keep({})
    observed = []
    for name in intents:
        data = run.entries[name]
        for length in range(len(data)):
            run.lab.put(name, data[:length])
            assert _entry(run.store, name) is None
            offsets += 1
        assert rebuilt(run.store).node.incarnation == max(numbers(observed), default=0)
        run.lab.put(name, data)
        observed.append(_entry(run.store, name))
        assert rebuilt(run.store).node.incarnation == max(numbers(observed), default=0)
    whole, again = run.controller.record, rebuilt(run.store)
    for reported in ("incarnation", "zone", "accepted", "vm_accepted"):
        assert stored_values(again)[reported] == stored_values(whole)[reported], reported
    assert set(again.zones_used) == set(whole.zones_used)
    FIGURES["journals"] = FIGURES.get("journals", 0) + 1
    FIGURES["offsets"] = FIGURES.get("offsets", 0) + offsets


def test_after_a_cut_journal_and_a_lost_record_nothing_is_made_twice(run):
    """What the journal has forgotten is found by its labels; or the command refuses before it changes anything."""
    before = run.machines()
    for _ in range(2):
        cut = run.dice.randrange(len(run.names))
        entries = {name: run.entries[name] for name in run.names[:cut]}
        torn = run.entries[run.names[cut]]
        run.keep({**entries, run.names[cut]: torn[: run.dice.randrange(len(torn))]})
        run.lab.put(RECORD, b"{")
        (run.lab.folder / "state" / "record.json").unlink()
        controller = run.lab.controller(run.spec)
        assert controller.records.damaged
        try:
            controller.up()
        except TpuctlError:
            FIGURES["refused"] = FIGURES.get("refused", 0) + 1
        assert run.machines() == before
        FIGURES["whole `up` after a cut"] = FIGURES.get("whole `up` after a cut", 0) + 1
    assert run.lab.up(run.spec).record.node.incarnation == run.controller.record.node.incarnation
