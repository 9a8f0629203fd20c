"""How `fleet queue` asks: few modules, one set of connections, and Slurm while the bucket is read."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

from orchestrator.app.deployment import session
from orchestrator.app.fleet import usage
from orchestrator.engine.fleet.job_store import ReadSubmissions
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.google.clients import Clients
from tests.kit.user import FleetOwner
from tests.scenarios.test_fleet import ended

CHANGES = {
    "orchestrator.advice", "orchestrator.app.source", "orchestrator.config.fleet_job",
    "orchestrator.engine.reconcile.reconciler", "orchestrator.report.fleet_page", "orchestrator.app.source.bundle",
    "pathspec",
}  # fmt: skip
"""What jobs are sent and pages are made with; it took a third of the command's time."""


def test_nothing_is_loaded_of_what_sends_jobs_and_makes_pages():
    """The command reads."""
    program = (
        "import json, sys\n"
        "import orchestrator.app.fleet.usage, orchestrator.cli.views.fleet_usage\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    root = str(Path(usage.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert not [name for name in found if any(f"{name}.".startswith(f"{one}.") for one in CHANGES)]


def test_a_task_that_ends_while_slurm_answers_is_done(cloud, monkeypatch):
    """Slurm does not know it any more: read before the answer, its mark would be missing, and it would wait."""
    owner = FleetOwner(cloud)
    owner.up("--yes")
    assert owner.submit(tasks=1).code == 0
    answer = Slurm.queue

    def late(slurm):
        found = answer(slurm)
        if not ended(cloud):
            cloud.put_object("jobs/sweep/ends/0.done", b"{}")
        return tuple(one for one in found if one.number)

    monkeypatch.setattr(Slurm, "queue", late)
    assert owner.states("sweep") == ["done"]


def test_the_bucket_is_read_while_slurm_answers(monkeypatch):
    """Its answer comes over SSH and takes longest."""
    reads = threading.Event()
    fleet = SimpleNamespace(head=SimpleNamespace(store=None, clock=None))
    monkeypatch.setattr(usage, "fleet_to_read", lambda choice, reporter: fleet)
    monkeypatch.setattr(usage.job_store, "read_all", lambda store: ReadSubmissions(()))
    monkeypatch.setattr(usage.UsageReader, "observe", lambda self, submissions: reads.set())
    monkeypatch.setattr(usage, "ask_slurm", lambda fleet, jobs: reads.wait(20))
    monkeypatch.setattr(usage, "queue", lambda store, read, name, answer: answer)
    assert usage.QueueObserver(None, None, None).observe() == (True, None)


def test_all_of_a_fleet_is_read_over_one_set_of_connections(cloud, monkeypatch):
    """A new one for each of 100 nodes would be made for two reads each."""
    owner, made = FleetOwner(cloud), []
    owner.up("--yes")
    monkeypatch.setattr(session, "Clients", lambda settings: made.append(settings) or Clients(settings))
    assert owner.run("queue").code == 0
    assert len(made) == 1
