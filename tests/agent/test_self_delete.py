"""`watch.self_delete`: a real agent process deletes its own node over HTTP, and only when it may."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orchestrator.agent.machine.self_delete import (
    BLIND,
    FOLLOWERS,
    HELD,
    MARGIN,
    STAND_IN,
    SelfDeletionFacts,
    stays,
    turn,
)
from orchestrator.contract.bucket.object_names import LEASE, RECORD
from orchestrator.domain.lease import EXPIRES_AFTER
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.metadata_tree import MachineView, answer
from orchestrator.emulator.http.router import Request, Response
from orchestrator.engine.records.record_format import encode
from tests.agent.agent_lab import BUCKET, AgentLab, AgentMachine
from tests.emulator.emulator_lab import NODES, a_lab, node_body
from tests.kit.records import record_of

LONG_AGO = MARGIN + 60.0


class SelfDeleteLab:
    """A bucket, a TPU node of the local cloud, and the machine of its worker 0."""

    def __init__(self, lab: AgentLab, metadata: str) -> None:
        self.agents = lab
        self.metadata = metadata
        self.machine = lab.machine(_STEP_SECONDS=0.05)
        self.calls: list[str] = []

    def record(self, ended_ago: float | None) -> None:
        """Let the deployment have ended *ended_ago* seconds ago; None: it may not delete itself."""
        end = 0.0 if ended_ago is None else time.time() - ended_ago
        self.agents.put(RECORD, encode(record_of(started_at=1.0, expires_at=end, incarnation=1), "lab"))

    def lease(self, age: float) -> None:
        """Let somebody have renewed the lease *age* seconds ago."""
        self.agents.put(LEASE, b"{}")
        with self.agents.storage.lock:
            held = self.agents.storage.objects.get(BUCKET, LEASE)
            object.__setattr__(held, "updated", held.updated - age)

    def run(self, made_until: float = 0.0) -> AgentMachine:
        """Run `agent.pyz self-delete` once, as cron does."""
        plain = dict(self.machine.env)
        self.machine.env.update(
            TPUCTL_LOCAL_CLOUD=self.agents.url, GCE_METADATA_HOST=self.metadata,
            TPUCTL_SELF_DELETE_AT=str(made_until or ""),
        )  # fmt: skip
        agent, self.machine.process = self.machine.process, None
        try:
            self.machine.start(self.machine.command("self-delete")).wait()
        finally:
            self.machine.env, self.machine.process = plain, agent
        return self.machine

    @property
    def deletes(self) -> list[str]:
        """Return the deletions that the TPU API was asked for."""
        return [call for call in self.calls if call.startswith("DELETE")]


@contextmanager
def own_metadata(view: MachineView) -> Iterator[str]:
    """Serve what the local cloud's metadata server answers the machine."""

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reported = answer(view, Request.parse("GET", self.path, dict(self.headers.items()), b""))
            self.send_response(reported.status)
            self.send_header("Content-Length", str(len(reported.body)))
            self.end_headers()
            self.wfile.write(reported.body)

        def log_message(self, *_: Any) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def self_delete_lab(lab: AgentLab, request: pytest.FixtureRequest) -> Iterator[SelfDeleteLab]:
    """Offer a node of incarnation 1, READY unless born with a fault; its machine finds API and bucket."""
    cloud = a_lab()
    if birth := getattr(request, "param", ""):
        cloud.cloud.fail_next("tpu.nodes.create", [birth])
    labels = {"tpuctl-deployment": "lab", "tpuctl-incarnation": "1"}
    cloud.node("lab-tpu-g1", labels=labels)
    with own_metadata(MachineView(cloud.cloud, cloud.cloud.machines()[0])) as metadata:
        made = SelfDeleteLab(lab, metadata)

        def tpu_api(request: Request) -> Response | None:
            if not request.path.startswith("/v2/"):
                return None
            made.calls.append(f"{request.method} {request.path}")
            return dispatch(cloud.router, cloud.cloud, request)

        lab.fault = tpu_api
        made.cloud = cloud  # type: ignore[attr-defined]
        yield made


def test_the_node_goes_after_a_last_commit_when_the_time_is_over(self_delete_lab: SelfDeleteLab) -> None:
    """The job saves, the agent commits and leaves, the node is deleted, and the heartbeat says why."""
    self_delete_lab.machine.start().until_committed(10)
    self_delete_lab.record(LONG_AGO)
    self_delete_lab.lease(EXPIRES_AFTER * 3)

    machine = self_delete_lab.run()

    assert self_delete_lab.deletes == [f"DELETE {NODES}/lab-tpu-g1"]
    assert machine.wait() == 0, "the agent has left"
    assert machine.job_processes() == []
    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["attempt"]) == ("stopped", 1)
    assert "this TPU deletes itself" in heartbeat["message"]
    assert heartbeat["committed_step"] == max(
        int(name.split("/")[1]) for name in self_delete_lab.agents.manifests()
    )
    assert (machine.root / "state" / "stop").exists(), "cron does not start the job again"
    assert self_delete_lab.cloud.call("GET", f"{NODES}/lab-tpu-g1")[1]["state"] == "DELETING"


@pytest.mark.parametrize("self_delete_lab", ["late-ready:500"], indirect=True)
def test_a_deletion_that_the_api_drops_is_asked_for_again(self_delete_lab: SelfDeleteLab) -> None:
    """Asked for while the API says CREATING it has no effect: each minute the node is looked at again."""
    self_delete_lab.record(LONG_AGO)
    self_delete_lab.run()
    self_delete_lab.cloud.after(60)
    assert self_delete_lab.cloud.ok("GET", f"{NODES}/lab-tpu-g1")["state"] == "CREATING"
    self_delete_lab.cloud.after(440)
    self_delete_lab.run()
    assert len(self_delete_lab.deletes) == 2
    self_delete_lab.cloud.after(60)
    assert self_delete_lab.cloud.call("GET", f"{NODES}/lab-tpu-g1")[0] == 404


@pytest.mark.parametrize("case", ["early", "held", "off", "damaged", "foreign", "missing", "refused"])
def test_what_is_not_certain_keeps_the_node(self_delete_lab: SelfDeleteLab, case: str) -> None:
    """Neither the node nor the job is touched."""
    self_delete_lab.record({"early": MARGIN - 60, "off": None}.get(case, LONG_AGO))
    if case == "held":
        self_delete_lab.lease(EXPIRES_AFTER)
    if case == "damaged":
        self_delete_lab.agents.put(
            RECORD, self_delete_lab.agents.read(RECORD).replace(b'"expires_at": 1', b'"expires_at": 0')
        )
    if case == "foreign":
        self_delete_lab.agents.put(RECORD, encode(record_of(expires_at=1.0), "another"))
    if case == "missing":
        self_delete_lab.agents.put(RECORD, b"")
    if case == "refused":
        api = self_delete_lab.agents.fault
        self_delete_lab.agents.fault = lambda request: (
            Response(403) if "/storage/" in request.path else api(request)
        )

    machine = self_delete_lab.run(made_until=time.time() - BLIND + 60)

    assert self_delete_lab.deletes == []
    assert not (machine.root / "state" / "stop").exists()
    blind = case in {"damaged", "foreign", "missing", "refused"}
    assert ("it is not known whether this TPU has to delete itself" in machine.agent_log()) == blind


def test_a_day_after_its_end_the_node_goes_also_unseen(self_delete_lab: SelfDeleteLab) -> None:
    """The clock of the TPU API is asked then; a node that was made with no end stays for ever."""
    self_delete_lab.run(made_until=0.0)
    assert self_delete_lab.deletes == []
    self_delete_lab.run(made_until=time.time() - BLIND - 60)
    assert len(self_delete_lab.deletes) == 1


def test_a_node_that_is_not_the_one_it_was_made_as_is_not_touched(self_delete_lab: SelfDeleteLab) -> None:
    """A machine of an older incarnation never deletes a newer one's node, whatever it is called."""
    self_delete_lab.record(LONG_AGO)
    body = {"labels": {"tpuctl-deployment": "lab", "tpuctl-incarnation": "2"}}
    self_delete_lab.cloud.ok("PATCH", f"{NODES}/lab-tpu-g1?updateMask=labels", {**node_body(), **body})
    self_delete_lab.cloud.after(5)

    assert "is labelled ('lab', '2')" in self_delete_lab.run().agent_log()
    assert self_delete_lab.deletes == []


def test_a_refusal_is_reported_and_tried_again_later(self_delete_lab: SelfDeleteLab) -> None:
    """Without the role: the heartbeat says so, the job stays stopped, and the pauses grow."""
    self_delete_lab.record(LONG_AGO)
    api, refusal = (
        self_delete_lab.agents.fault,
        {"error": {"message": "Permission 'tpu.nodes.delete' denied"}},
    )
    self_delete_lab.agents.fault = lambda request: (
        Response.of(refusal, 403) if request.method == "DELETE" else api(request)
    )

    heartbeat = self_delete_lab.run().heartbeat()
    self_delete_lab.run()

    assert "may not delete itself (next try in 60 s)" in heartbeat["message"]
    assert "Permission 'tpu.nodes.delete' denied" in heartbeat["message"]
    memory = self_delete_lab.machine.root / "state" / "self-delete.json"
    assert json.loads(memory.read_text())["refusals"] == 1, "a minute has not passed"
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "next_try": 0.0}))
    assert "(next try in 120 s)" in self_delete_lab.run().heartbeat()["message"]


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (SelfDeletionFacts(1e6, 0.0), "no end is set"),
        (SelfDeletionFacts(1e6 + MARGIN - 1, 1e6), "its time is not over"),
        (SelfDeletionFacts(1e6 + MARGIN, 1e6), ""),
        (SelfDeletionFacts(1e6 + MARGIN, 1e6, lease_age=HELD - 1), "another tpuctl works on the deployment"),
        (SelfDeletionFacts(1e6 + MARGIN, 1e6, lease_age=-5.0), "another tpuctl works on the deployment"),
        (SelfDeletionFacts(1e6 + MARGIN, 1e6, lease_age=HELD), ""),
        (SelfDeletionFacts(1e6 + BLIND - 1, 1e6, blind=True), "the bucket does not answer"),
        (SelfDeletionFacts(1e6 + BLIND, 1e6, blind=True), ""),
        (SelfDeletionFacts(1e9, 0.0, blind=True), "no end is set"),
    ],
)
def test_the_rule(observed: SelfDeletionFacts, reason: str) -> None:
    """What is over and unheld goes; what is unseen goes a day later."""
    assert stays(observed).startswith(reason)
    assert bool(stays(observed)) == bool(reason)


def test_worker_0_waits_for_the_others_and_they_stand_in_for_it() -> None:
    """All workers of a slice save before one of them deletes it, within ten minutes of the end."""
    over = MARGIN + 1e6
    assert turn(SelfDeletionFacts(over, 1e6), 0, 1)
    assert [turn(SelfDeletionFacts(over + late, 1e6), 0, 4) for late in (0, FOLLOWERS)] == [False, True]
    assert [turn(SelfDeletionFacts(over + late, 1e6), 3, 4) for late in (FOLLOWERS, STAND_IN)] == [
        False,
        True,
    ]
    assert MARGIN + FOLLOWERS + 60 < 600
    assert HELD > EXPIRES_AFTER
