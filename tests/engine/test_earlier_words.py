"""Files of an earlier release say `unclaimed` or `spent` where this one has another word; they are read on."""

import json
from dataclasses import replace

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.contract.agent_lines import ends_agent
from orchestrator.contract.bucket.heartbeat_keys import EARLIER_KEYS
from orchestrator.contract.bucket.object_names import EVENTS
from orchestrator.contract.bucket.uncommitted_manifest import RescueMoment, UncommittedManifest, parse
from orchestrator.contract.phase import Phase
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.events import Event, EventKind, change_word
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Change, Kind, Outcome, Verb
from orchestrator.domain.ports import StoredObject
from orchestrator.domain.record import Record
from orchestrator.domain.spec import CheckpointSpec, JobSpec, UserSpec
from orchestrator.engine.bucket.heartbeats import parse_heartbeat
from orchestrator.engine.bucket.uncommitted import UncommittedFiles
from orchestrator.engine.fleet.job_store import decoded, encoded, end_marks
from orchestrator.engine.fleet.user_store import read_users, write_users
from orchestrator.engine.publish.event_log import EventLog, read_events
from orchestrator.engine.publish.outbox import OUTBOX, SENT, Outbox
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.fleet.tasks import Submission, TaskState
from orchestrator.planning.fleet.users import FleetUsers
from orchestrator.planning.notifications import Notification, due
from tests.google.adapter_lab import a_bucket, a_lab
from tests.kit.records import record_of
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import world


def test_the_outcome_of_a_record_is_stored_by_its_earlier_word():
    """An older tpuctl on another computer reads the same file."""
    data = encode(replace(Record(), outcome=Outcome.UNCOMMITTED, message="it ended"), "demo")
    stored = json.loads(data)["history"]
    assert (stored["outcome"], stored["reason"]) == ("unclaimed", "it ended")
    again = decode(data, "demo")
    assert (again.outcome, again.message) == (Outcome.UNCOMMITTED, "it ended")


def test_the_report_of_an_earlier_agent_is_read():
    """Its machine may still run while its controller is new."""
    body = {
        "incarnation": 1, "worker": 0, "workers": 1, "phase": "unclaimed", "unclaimed_files": 2,
        "unclaimed_bytes": 9, "unclaimed_complete": False,
    }  # fmt: skip
    data = json.dumps(body).encode()
    heartbeat = parse_heartbeat(StoredObject(".tpuctl/heartbeat/1/0", len(data), 1, 5.0, data))
    assert heartbeat == Heartbeat(
        1, 0, Phase.UNCOMMITTED, 5.0, uncommitted_files=2, uncommitted_bytes=9, uncommitted_complete=False
    )


def test_each_key_of_an_earlier_agent_is_read_and_the_present_one_counts():
    """Machines of both releases report to one controller."""
    begin = {"incarnation": 1, "worker": 0, "phase": "run"}
    numbers = {key: number for number, key in enumerate(sorted(EARLIER_KEYS), start=1)}
    earlier = {**numbers, "save_cost_from": "measured", "unclaimed_complete": True}
    present = {EARLIER_KEYS[key]: value for key, value in earlier.items()}
    heartbeats = [
        parse_heartbeat(StoredObject(".tpuctl/heartbeat/1/0", len(data), 1, 5.0, data))
        for body in (earlier, present, {**present, **dict.fromkeys(earlier, 99)})
        for data in (json.dumps({**begin, **body}).encode(),)
    ]
    assert heartbeats == [Heartbeat(1, 0, Phase.RUN, 5.0, **present)] * 3
    assert earlier.keys() == {
        "began_at", "save_apart", "save_every", "starts", "save_cost", "save_cost_from", "save_stalled",
        "save_life", "programs_back", "programs_compiled", "total_steps", "unclaimed_bytes", "unclaimed_complete",
        "unclaimed_files",
    }  # fmt: skip


def test_a_job_in_the_bucket_has_its_save_pause_under_the_key_of_every_release():
    """A fleet's controller and its users may have different ones."""
    job = JobSpec(command="x", checkpoint=CheckpointSpec(save_pause=5.0))
    submission = Submission("sweep", ({},), job, "b" * 64, "s", 1.0)
    data = encoded(submission)
    assert json.loads(data)["order"]["job"]["checkpoint"]["save_seconds"] == 5.0
    assert decoded(data, "sweep") == submission


def test_a_manifest_has_the_earlier_word_of_a_job_that_ended_without_a_checkpoint():
    """An older tpuctl reads the same folder; `--json` has the word of today."""
    one = UncommittedManifest(1, 0, 1, 1, "b", "s", "auto", RescueMoment.UNCOMMITTED, True, (), (), 5.0)
    assert json.loads(one.text())["why"] == "ended"
    assert parse(one.text().encode(), "m") == one
    assert UncommittedFiles(1, (one,)).as_dict()["moment"] == "uncommitted"


def test_the_end_mark_and_the_last_line_of_an_earlier_agent_are_read():
    """Names in a fleet's bucket have the word, and so has the log."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    store = lab.store()
    store.write("jobs/sweep/ends/3.unclaimed", b"{}")
    assert end_marks(store, "sweep")[3].state is TaskState.UNCOMMITTED
    assert ends_agent("--- unclaimed: the job left with status 0 ---")
    assert ends_agent("--- uncommitted: the job left with status 0 ---")


@pytest.mark.parametrize(
    ("was", "outcome"), [("spent", Outcome.LIMIT_REACHED), ("unclaimed", Outcome.UNCOMMITTED)]
)
@pytest.mark.parametrize("folder", [OUTBOX, SENT])
def test_an_end_that_was_notified_under_its_earlier_id_is_not_notified_again(was, outcome, folder):
    """Its id had another word, which a deployment may have in its name."""
    lab, named = a_lab(), a_spec(name=f"demo-{was}-1")
    lab.buckets.create(a_bucket())
    store, ended = lab.store(), record_of(started_at=100.0, incarnation=1)
    stored = Notification(f"{named.name}-100-{was}-1", "budget", 5.0, named.name, "stopped: why")
    store.write(folder + stored.id, stored.to_json())
    outbox = Outbox(store, (), VirtualClock(), [].append)
    outbox.add(due(named, world(heartbeats=Present(())), ended, outcome, "why", 0.0))
    assert outbox.unsent == ((stored,) if folder == OUTBOX else ())


def test_a_notification_is_stored_under_the_keys_of_every_release():
    """Another version may send it; receivers get the keys of today."""
    one = Notification("d-100-up", "up", 5.0, "d", "the job runs", {"n": 1})
    stored, sent = json.loads(one.to_json()), json.loads(one.sent_json())
    assert (stored["event"], stored["text"]) == (sent["kind"], sent["message"]) == ("up", "the job runs")
    assert not stored.keys() & {"kind", "message"}
    assert not sent.keys() & {"event", "text"}
    assert Notification.from_json(one.to_json()) == one


def test_the_users_of_a_fleet_that_is_up_are_read():
    """Its bucket calls them a team."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    store, stored = lab.store(), {"users": {"alice": {"share": 2}}, "priorities": {}}
    store.write(".tpuctl/team.json", bytes_with_checksum({"schema": 1, "team": stored}))
    assert read_users(store) == FleetUsers({"alice": UserSpec(share=2)})
    write_users(store, FleetUsers({"bob": UserSpec()}))
    assert list(verified(store.read(".tpuctl/team.json").data)["team"]["users"]) == ["bob"]


def test_what_is_given_back_is_stored_by_its_earlier_word():
    """Programs read the events of a bucket, those of before and of today."""
    given_back = (EventKind.TPU_GIVEN_BACK, EventKind.VM_GIVEN_BACK, EventKind.BUCKET_GIVEN_BACK)
    stored = [Event(1.0, kind, "").stored_kind for kind in given_back]
    assert stored == ["node-released", "vm-released", "bucket-released"]


def test_an_event_about_a_tpu_is_stored_with_the_earlier_words_and_read_with_those_of_today():
    """Buckets and journals say node and why, `--json` says tpu and message."""
    change = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g2", "it is PREEMPTED", "z", 2)
    event = Event(1.0, change_word(change.kind, change.verb), "asked for", change.as_dict())
    assert (event.kind, event.data["kind"], event.data["message"]) == ("tpu-create", "tpu", "it is PREEMPTED")
    lab = a_lab()
    lab.buckets.create(a_bucket())
    log = EventLog(lab.store(), [].append, lambda: True)
    log(event)
    log.flush()
    (found,) = lab.store().list(EVENTS)
    stored = json.loads(lab.store().read(found.name).data)
    assert (found.name, stored["kind"]) == (f"{EVENTS}1000-00-node-create.json", "node-create")
    assert stored["data"] == change.stored()
    assert (stored["data"]["kind"], stored["data"]["why"]) == ("node", "it is PREEMPTED")
    assert read_events(lab.store()) == [event]
