"""What Slurm prints becomes values once, where it is read."""

import pytest

from orchestrator.domain.remote import Host, RunResult
from orchestrator.engine.fleet.slurm import _WIDTHS, Slurm
from orchestrator.planning.fleet.tasks import After


class Printing:
    """A machine whose commands print *text*."""

    def __init__(self, text):
        self.text = text

    def run_elevated(self, hosts, script, timeout):
        """Return the text for each machine."""
        return [RunResult(0, self.text) for _ in hosts]


def a_slurm(text):
    """Return Slurm on a machine that prints *text*."""
    return Slurm(Printing(text), Host("head", "127.0.0.1", ()))


@pytest.mark.parametrize(
    ("state", "reason", "going"),
    [
        ("IDLE+DRAIN", "tpuctl-idle-g3", True),
        ("IDLE+DRAIN", "broken", False),
        ("IDLE", "tpuctl-idle-g3", False),
        ("IDLE", "", False),
    ],
)
def test_a_drained_node_goes_if_the_reason_is_ours(state, reason, going):
    """A node that a person has drained stays."""
    slurm = a_slurm(f"1000\nNodeName=n-1 State={state} Reason={reason} [slurm@2026-01-01]\n")
    assert slurm.node_states()["n-1"].going is going


def test_a_task_of_the_queue_has_its_array_and_what_it_waits_for():
    """In an order that does not depend on Slurm's."""
    columns = {
        "ArrayJobID": "12", "ArrayTaskID": "3", "Name": "then", "State": "PENDING", "RestartCnt": "0",
        "Dependency": "afterok:9(unfulfilled),afterany:7(unfulfilled)", "PriorityLong": "1", "Account": "(null)",
    }  # fmt: skip
    (task,) = a_slurm("".join(columns.get(name, "").rjust(width) for name, width in _WIDTHS.items())).queue()
    assert (task.array, task.slurm_id) == ("12", "12_3")
    assert task.after == (After("afterany", "7"), After("afterok", "9"))
