"""How many nodes a fleet wants, and which of them come and go."""

from dataclasses import replace

from orchestrator.domain.spec import FleetSpec, JobSpec, UserSpec
from orchestrator.domain.text.units import Duration
from orchestrator.planning.fleet.size import (
    FleetNode,
    FleetNodePhase,
    Resize,
    SlurmNode,
    first_nodes,
    fit,
    free_since,
    nodes_waited_for,
    resize,
)
from orchestrator.planning.fleet.tasks import SlurmTask, Submission, TaskState
from orchestrator.planning.fleet.users import FleetUsers

IDLE, BUSY, DOWN = (SlurmNode(frozenset({state})) for state in ("IDLE", "ALLOCATED", "DOWN"))
GOING = SlurmNode(frozenset({"IDLE", "DRAIN"}), True)
NOW = 10_000.0


def size(nodes=4, min_idle=0):
    """Return the settings of a fleet whose nodes go after ten minutes."""
    return FleetSpec(nodes, min_idle, Duration(600))


def node(number, slurm=IDLE, phase=FleetNodePhase.UP, free=0.0):
    """Return a node that has been free for *free* seconds."""
    since = None if slurm.has_task or phase is not FleetNodePhase.UP else NOW - free
    return FleetNode(f"demo-{number:03d}", phase, slurm, since)


def absent(*numbers):
    """Return nodes that do not exist."""
    return [node(number, DOWN, FleetNodePhase.NONE) for number in numbers]


def test_tasks_that_wait_bring_as_many_nodes_as_there_may_be():
    """The first names are taken first; a node that is on its way counts as one."""
    found = resize(size(), 3, [node(1, BUSY), node(2, DOWN), *absent(3, 4)], NOW)
    assert found == Resize(4, start=("demo-003", "demo-004"))
    assert resize(size(), 1, [node(1, BUSY), node(2, DOWN), *absent(3, 4)], NOW) == Resize(2)


def test_only_nodes_that_were_free_for_long_go_and_never_more_than_are_too_many():
    """The one that has been free longest goes first."""
    nodes = [node(1, free=700), node(2, BUSY), node(3, free=900), node(4, free=599)]
    assert resize(size(), 0, nodes, NOW).end == ("demo-003", "demo-001")
    assert resize(size(min_idle=2), 0, nodes, NOW).end == ("demo-003",)
    assert resize(size(), 3, nodes, NOW) == Resize(4)


def test_a_drained_node_is_taken_back_before_another_one_is_asked_for():
    """With a task it always is; without one it goes as soon as it is too many."""
    nodes = [node(1, GOING), *absent(2, 3, 4)]
    assert resize(size(), 2, nodes, NOW) == Resize(2, keep=("demo-001",), start=("demo-002",))
    assert resize(size(), 0, nodes, NOW) == Resize(0, end=("demo-001",))
    caught = SlurmNode(frozenset({"ALLOCATED", "DRAIN"}), True)
    assert resize(size(), 0, [node(1, caught)], NOW) == Resize(1, keep=("demo-001",))


def test_a_node_that_an_operator_has_drained_is_not_taken_back():
    """Its reason is theirs."""
    theirs = SlurmNode(frozenset({"IDLE", "DRAIN"}))
    assert resize(size(1), 1, [node(1, theirs)], NOW) == Resize(1)


def test_a_deletion_that_was_begun_is_ended():
    """Nobody saw its end: its machine may still be there."""
    assert resize(size(), 4, [node(1, DOWN, FleetNodePhase.LEAVING), *absent(2)], NOW).end == ("demo-001",)


def test_without_min_idle_a_fleet_keeps_its_size():
    """Whatever the queue says: a file of before means what it meant."""
    nodes = [node(1, free=9000), node(2, GOING), *absent(3), node(4, DOWN, FleetNodePhase.LEAVING)]
    assert resize(size(min_idle=None), 0, nodes, NOW) == Resize(4, keep=("demo-002",))


def test_a_task_waits_for_a_node_when_neither_a_mark_nor_slurm_says_otherwise():
    """One that waits for another job, or is held, gets no node by waiting."""
    submission = Submission("sweep", tuple({} for _ in range(5)), JobSpec("x"), "b", "s", 1.0, cancelled=(4,))
    slurm_tasks = [
        SlurmTask("sweep", 1, "RUNNING", "7", 0, "demo-001"),
        SlurmTask("sweep", 3, "PENDING", "7"),
    ]
    assert nodes_waited_for([submission], {"sweep": {0: TaskState.DONE}}, slurm_tasks) == 2
    assert nodes_waited_for([submission], {"sweep": {0: TaskState.DONE}}, []) == 3
    assert nodes_waited_for([replace(submission, held=True)], {}, []) == 0
    assert nodes_waited_for([replace(submission, slices=(2, 4))], {}, slurm_tasks) == 12
    later = replace(submission, name="later", after={"sweep": "ok"})
    assert nodes_waited_for([submission, later], {"sweep": {0: TaskState.DONE}}, slurm_tasks) == 2


def test_nodes_are_wanted_for_users_who_may_use_them():
    """Not for one whose budget is spent, and for nobody more than the limit leaves."""
    one = Submission("one", ({},) * 5, JobSpec("x"), "b", "", 0.0, user="bob")
    two = replace(one, name="two", user="alice")
    slurm_tasks = [SlurmTask("one", 0, "RUNNING", "7", node="demo-001")]
    assert nodes_waited_for([one, two], {}, slurm_tasks) == 9
    assert nodes_waited_for([one, two], {}, slurm_tasks, over_budget={"alice"}) == 4
    fleet_users = FleetUsers({"bob": UserSpec(nodes=3)})
    assert nodes_waited_for([one, two], {}, slurm_tasks, fleet_users) == 7
    assert nodes_waited_for([one], {}, slurm_tasks, FleetUsers({"bob": UserSpec(nodes=1)})) == 0


def test_a_short_task_between_two_looks_is_no_idleness():
    """Slurm remembers when a node's last task ended; what it says of before the first look does not count."""
    nodes = {"a": IDLE, "b": BUSY, "c": SlurmNode(frozenset({"IDLE"}), False, 5.0)}
    assert free_since({"a": 100.0, "b": 100.0, "c": 100.0}, nodes, NOW) == {"a": 100.0, "c": NOW - 5}
    fresh = {"d": SlurmNode(frozenset({"IDLE"}), False, 9000.0)}
    assert free_since({}, fresh, NOW) == {"d": NOW}


def test_up_leaves_what_is_up_and_fills_from_the_front():
    """Nodes that are too many are for the watch, which lets their tasks end."""
    names = ("a", "b", "c", "d")
    assert first_nodes(names, ["c"], 2) == ("a", "c")
    assert first_nodes(names, ["b", "c"], 0) == ("b", "c")


def test_what_is_missing_of_the_quota_is_named_exactly():
    """Nodes fill the zones; -1 is no limit."""
    found = fit(5, 8, {"a": 20, "b": 8})
    assert (found.room, found.quota_missing) == (3, 16)
    assert fit(5, 8, {"a": -1, "b": 0}).quota_missing == 0
    assert fit(2, 8, {"a": 100}).room == 2
