"""What goes to the VM with the loop, for whom it steps aside, and what `status` says of it."""

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.views.status import watcher_text
from orchestrator.config.adapter import document_of
from orchestrator.config.load import load, read
from orchestrator.domain.lease import PEOPLE
from tests.cli.cli_kit import ROOT, here
from tests.cli.test_status_view import body
from tests.planning.planning_kit import a_spec

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))

ALIVE = {
    "on": "vm",
    "who": "root@vm",
    "command": "watch on the VM",
    "since": 0.0,
    "renewed_age_s": 8.0,
    "alive": True,
}
NONE = "not running{}: preempted TPUs will not be replaced. Run: {}"


def line(loop, *, vm="RUNNING", outcome=None, wanted=False):
    """Return the line for one state of things; *wanted* says that the file has `watch.on_vm`."""
    rows = [{"kind": "vm", "name": "demo-vm", "zone": "z", "state": vm}]
    return watcher_text(body(watcher=loop, outcome=outcome, resources=rows, watch_on_vm=wanted))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (line(ALIVE), "on the VM, last sign of life 8 s ago"),
        (
            line({**ALIVE, "on": "elsewhere", "who": "me@laptop", "command": "watch"}),
            "`tpuctl watch` of me@laptop, last sign of life 8 s ago",
        ),
        (
            line(ALIVE, vm="TERMINATED"),
            NONE.format(" (the VM is TERMINATED)", "tpuctl up"),
        ),
        (
            line({**ALIVE, "alive": False}),
            NONE.format(" (the one on the VM is silent)", "tpuctl watch --on-vm"),
        ),
        (line(None), NONE.format("", "tpuctl watch")),
        (line(None, wanted=True), NONE.format("", "tpuctl watch --on-vm")),
        (
            line(None, wanted=True, vm="TERMINATED"),
            NONE.format(" (the VM is TERMINATED)", "tpuctl up"),
        ),
        (line(None, outcome="done"), ""),
        (line({**ALIVE, "alive": False}, outcome="done"), ""),
    ],
)
def test_status_says_where_the_loop_runs(found, text):
    """And, when none does, what follows and what to do."""
    assert found == text


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/tpuctl.yaml")), ids=lambda p: p.parent.name)
def test_the_vm_gets_the_deployment_file_with_all_overrides(path):
    """What the loop reads means the same as file, variables and flags did here."""
    spec = load(path, {"tpu.spot": "false", "watch.poll": "2.5s", "vm.zone": ""}, {"TPUCTL_WATCH__TTL": "3d"})
    assert read(document_of(spec).encode(), "x", {}, {}) == spec


@settings(deadline=None)
@given(value=TEXTS)
def test_no_text_of_the_file_is_changed_on_the_way(value):
    """Emoji, control characters and quotes arrive as they are."""
    spec = a_spec()
    spec = dataclasses.replace(
        spec, job=dataclasses.replace(spec.job, env={"A": value}, command=f"true {value}")
    )
    assert read(document_of(spec).encode(), "x", {}, {}).job == spec.job


def test_the_loop_steps_aside_for_every_command_that_takes_the_lease():
    """A new one has to be added to PEOPLE, unless it leaves a deployment to whoever holds the lease."""
    texts = [path.read_text() for path in (ROOT / "orchestrator" / "app").rglob("*.py")]
    found = {word for text in texts for word in re.findall(r"\.holding_lease\(\s*\"([^\"]+)", text)}
    assert {"up", "down"} <= found - {"expire"} <= set(PEOPLE)


def test_a_vm_not_made_for_the_loop_is_refused_at_once(tmp_path, monkeypatch, capsys):
    """Before any cloud is asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tpuctl.yaml").write_text(document_of(a_spec()))
    code, _, err = here(capsys, "watch", "--on-vm")
    assert (code, "add `on_vm: true` to watch" in err) == (2, True)
