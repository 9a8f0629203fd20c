"""
Anything that people may type, in any order, while machines are taken away and commands are killed.

TPUCTL_FUZZ says how many runs of how many commands are made, such as 200x30; a failure prints its commands
as a program.
"""

import os
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.kit.cloud import VirtualCloud
from tests.kit.figures import record_figures
from tests.kit.user import User

STATUSES = {0, 1, 2, 3, 4, 5, 6, 7, 130}
"""What the README says that a command may end with."""
ZONES = ("europe-west4-a", "europe-west4-b")
EDITS = {
    "tpu__zones": [[ZONES[0]], [ZONES[1]], list(ZONES)],
    "tpu__type": ["v5litepod-8", "v5litepod-4", "v5litepod-16"],
    "tpu__spot": [True, False],
    "vm": ["none", {"machine_type": "e2-small"}, {"machine_type": "e2-medium", "spot": True}],
    "watch__ttl": ["7d", "2h"],
    "watch__budget_usd": [None, 1.5],
    "job__command": ["python3 train.py", "python3 train.py --faster"],
}
READS = [("status",), ("status", "--json"), ("plan",), ("check",), ("checkpoints",), ("logs",)]
WRONG = [
    ("up", "--foo"), ("upp",), ("watch", "--stop"), ("down",), ("status", "--cloud", "mars"),
    ("up", "--set", "tpu.type=v99-8"), ("up", "--set", "nonsense"), ("plan", "--set", "tpu.zones=[]"),
]  # fmt: skip
PASSING = ("REPAIRING", "STOPPED", "TERMINATED", "HIDDEN", "vanish", "UNHEALTHY_MAINTENANCE")
TAKEN = {"STOPPED", "TERMINATED", "vanish"}
STRIKES = ("preempt", "kill", *PASSING)
CALLS = st.tuples(st.integers(1, 30), st.sampled_from(["before", "after"]))
COUNTED = Counter()


class Commands(RuleBasedStateMachine):
    """One deployment, two computers, and a third one that has nothing but the file."""

    users = st.sampled_from(["home", "away", "new"])

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tpuctl-fuzz-")))
        self.cloud = self.stack.enter_context(VirtualCloud(folder, latency="realistic").open())
        self.file, self.struck = {}, float("-inf")
        self.known = {name: User(self.cloud, name) for name in ("home", "away")}
        COUNTED["runs"] += 1

    def _computer(self, name):
        if name in self.known:
            return self.known[name]
        return User(self.cloud, f"new{len(self.cloud.users)}", **self.file)

    def _type(self, user, *words, **options):
        COUNTED["commands"] += 1
        said = user.run(*words, **options)
        COUNTED["killed"] += said.code is None
        killed = "kill" in options and said.code is None
        assert killed or said.code in STATUSES, said
        for text in (said.out, said.err):
            assert "Traceback" not in text, text
            assert "this is a bug in tpuctl" not in text, text
        return said

    # What people type.

    @rule(user=users)
    def up(self, user):
        """After an `up` that ends well there is one TPU with the job, or the job is over."""
        said = self._type(self._computer(user), "up", interrupt=3000)
        if said.code == 0 and "the job is done" not in said.err:
            running = any(worker.running for worker in self.cloud.machines.workers.values())
            # Machines that report keep a TPU whose state is strange; without reports its state decides.
            usable = {"CREATING", "READY"} | (set(PASSING) - TAKEN if running else set())
            retained = [node for node, state in self.cloud.nodes("demo-tpu-").items() if state in usable]
            assert len(retained) == 1, self.cloud.nodes()
            # A machine that died a moment ago is not missed before its reports are.
            assert running or self.cloud.clock.monotonic() - self.struck < 300

    @rule(user=users, seconds=st.sampled_from([40, 300, 1500]))
    def watch(self, user, seconds):
        self._type(self._computer(user), "watch", interrupt=seconds, timeout=seconds + 3000)

    @rule(user=users, data=st.booleans())
    def down(self, user, data):
        """
        After a `down` that ends well nothing is there, and nothing comes.

        A computer that knows the file alone, when the bucket is gone too, cannot know of earlier zones.
        """
        knows = bool(self.cloud.buckets())
        said = self._type(self._computer(user), "down", "--yes", *(["--delete-data"] if data else []))
        if said.code == 0:
            assert not (data and self.cloud.buckets())
            self.cloud.wait(400)
            if knows:
                self.cloud.checks.gone("demo")
        elif said.code == 6:
            self.cloud.wait(70)

    @rule(user=users, words=st.sampled_from(READS))
    def read(self, user, words):
        """What only reads changes nothing."""
        assert self._type(self._computer(user), *words).calls == 0

    @rule(user=users, words=st.sampled_from(WRONG))
    def mistype(self, user, words):
        """What is wrong is reported before anything is changed."""
        said = self._type(self._computer(user), *words)
        assert (said.code, said.calls) == (2, 0), said

    @rule(key=st.sampled_from(sorted(EDITS)), choice=st.integers(0, 2))
    def edit(self, key, choice):
        self.file[key] = EDITS[key][choice % len(EDITS[key])]
        for user in self.known.values():
            user.edit(**self.file)

    @rule(user=users, text=st.sampled_from(["a", "b"]))
    def new_code(self, user, text):
        self._computer(user).write("train.py", f"print('{text}')\n")

    # What goes wrong.

    @rule(user=users, words=st.sampled_from([("up",), ("watch",), ("down", "--yes")]), kill=CALLS)
    def killed(self, user, words, kill):
        self._type(self._computer(user), *words, kill=kill, interrupt=900)

    @rule(
        words=st.sampled_from([("up",), ("watch",)]), call=st.integers(1, 25), pause=st.sampled_from([0, 70]),
        other=st.sampled_from([("up",), ("watch",), ("down", "--yes"), ("down", "--yes", "--delete-data")]),
    )  # fmt: skip
    def second_client(self, words, call, pause, other):
        """One command stands still in a call while another computer's runs."""

        def meanwhile():
            self.cloud.wait(pause)
            self._type(self.known["away"], *other, interrupt=600)

        self._type(self.known["home"], *words, meanwhile={call: meanwhile}, interrupt=900, timeout=9000)

    @precondition(lambda self: self.cloud.in_use())
    @rule(how=st.sampled_from(STRIKES), notice=st.booleans())
    def strike(self, how, notice):
        node = self.cloud.in_use()[0]
        if how in PASSING and self.cloud.nodes()[node] == "READY":
            self.cloud.model.set_node_state(node, how)
        elif how == "preempt" and self.file.get("tpu__spot", True):
            self.cloud.model.preempt(node, notice=notice)
        else:
            for machine in [m for m in self.cloud.machines.workers if f"-{node}-" in m]:
                self.cloud.machines.stop(machine)
        self.struck = self.cloud.clock.monotonic()
        COUNTED["strikes"] += 1

    @rule(phase=st.sampled_from(["done", "uncommitted", "failed"]))
    def job_ends(self, phase):
        saved = {"committed_step": 5} if phase == "done" else {}
        self.cloud.machines.say("demo", phase=phase, message="status 1", **saved)

    @rule(zones=st.sampled_from([(), ZONES[:1], ZONES]))
    def stockout(self, zones):
        self.cloud.change(stockouts=frozenset(zones))

    @rule(hours=st.sampled_from([0.02, 0.5, 3]))
    def time_passes(self, hours):
        self.cloud.wait(hours * 3600)

    # What must always hold.

    @invariant()
    def holds(self):
        """I1, I2 and I3, as checked whenever time passed."""
        zones = {*ZONES, "europe-west4-c"}
        self.cloud.checks.findable("demo", zones)
        assert self.cloud.checks.verdict == []

    def teardown(self):
        """In the end `down` leaves nothing, whatever has happened before."""
        try:
            self.cloud.change(stockouts=frozenset())
            self.cloud.wait(130)
            for user in self.known.values():
                said = self._type(user, "down", "--yes", "--delete-data")
                assert said.code == 0, said
            self.cloud.wait(3600)
            assert (self.cloud.nodes(), self.cloud.vms(), self.cloud.buckets()) == ({}, {}, [])
        finally:
            self.stack.close()


def test_any_order_of_commands_leaks_doubles_and_loses_nothing():
    """Statuses are those of the README, nothing is a bug, and what is taken down is gone."""
    size = os.environ.get("TPUCTL_FUZZ", "")
    runs, steps = (int(part) for part in (size or "6x10").split("x"))
    COUNTED.clear()
    run_state_machine_as_test(
        Commands,
        settings=settings(
            max_examples=runs, stateful_step_count=steps, deadline=None, derandomize=not size, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
        ),
    )  # fmt: skip
    record_figures(
        "fuzz", "Any order of commands",
        "Commands, edits, kills, preemptions and a second computer in any order; TPUCTL_FUZZ sets the size.",
        {"runs": COUNTED["runs"], "commands": COUNTED["commands"], "of them killed": COUNTED["killed"],
         "machines taken away": COUNTED["strikes"]},
    )  # fmt: skip
