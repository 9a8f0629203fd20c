"""The agent's way to the bucket: bounded retries, preconditions, large files, and a disk that is full."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.agent.agreement.attempts import Attempt, AttemptStore
from orchestrator.agent.attempt import attempt_record
from orchestrator.agent.cloud import storage
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings, read_settings
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent, HeartbeatWriter, heartbeat_name
from orchestrator.agent.telemetry.logs import SEGMENT, JobLog, LogShipper
from orchestrator.clock import Clock, VirtualClock
from orchestrator.contract.bucket.object_names import WAKE
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError, TransientError
from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import BUCKET, AgentLab


def bucket_of(lab: AgentLab, granted: float = 0.0) -> JobBucket:
    """Return the agent's client of the lab's bucket, on which its account was *granted* a role."""
    environ = {"STORAGE_EMULATOR_HOST": lab.url, "TPUCTL_GRANTED_AT": str(granted or "")}
    return JobBucket.from_environ(BUCKET, environ, Metadata(lab.metadata.address))


def settings_of(lab: AgentLab) -> Settings:
    """Return the settings of one machine."""
    return read_settings(lab.machine().env)


class ClockWithNews(VirtualClock):
    """A virtual clock that lists its waits; during the first one something happens, as in another thread."""

    def __init__(self, news: Callable[[], None]) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._news = news

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        self.waits.append(seconds)
        super().wait(seconds, wake)
        if len(self.waits) == 1:
            self._news()


def reporting(lab: AgentLab, clock: Clock) -> tuple[HeartbeatContent, HeartbeatWriter]:
    """Return the content of one machine's heartbeat, and what writes it."""
    settings = settings_of(lab)
    heartbeat = HeartbeatContent(settings, clock)
    return heartbeat, HeartbeatWriter(settings, bucket_of(lab), heartbeat, clock)


def test_absent_and_unreachable_are_different(lab: AgentLab) -> None:
    """None means that the service said so; a service that does not answer raises."""
    bucket = bucket_of(lab)
    assert bucket.read("no/such/object") is None
    assert bucket.list("no/such/") == []

    lab.fault = lambda _request: Response(503, b"")
    with pytest.raises(TransientError):
        bucket.read("no/such/object", timeout=1)


def test_of_what_is_too_large_no_more_than_the_limit_is_held(
    lab: AgentLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest of any size does not fill the memory of the machine that comes next."""
    monkeypatch.setattr(storage, "IN_MEMORY", 1000)
    bucket = bucket_of(lab)
    bucket.write("large", b"x" * 5000)
    bucket.write("small", b"x" * 1000)

    for name in ("large", "small"):
        held = bucket.read(name)
        assert held is not None
        assert held.data == b"x" * 1000


def test_no_more_comes_to_the_disk_than_the_manifest_says(lab: AgentLab, tmp_path: Path) -> None:
    """An object that is larger than its manifest says fills no disk; one of the right size comes."""
    bucket = bucket_of(lab)
    data = b"x" * (3 << 20)
    bucket.write("large", data)

    with pytest.raises(DamagedError, match="more than the 1048577 bytes"):
        bucket.download("large", tmp_path / "file", (1 << 20) + 1)
    assert (tmp_path / "file").stat().st_size <= 1 << 20

    bucket.download("large", tmp_path / "file", len(data))
    assert (tmp_path / "file").read_bytes() == data


def test_missing_bucket_is_not_an_empty_one(lab: AgentLab) -> None:
    """A list in a bucket that is gone raises instead of showing nothing."""
    other = JobBucket.from_environ("gone", {"STORAGE_EMULATOR_HOST": lab.url}, Metadata(lab.metadata.address))
    with pytest.raises(TransientError, match="the bucket is not there"):
        other.list("checkpoints/", timeout=1)


def test_refusal_is_not_retried(lab: AgentLab) -> None:
    """403 will be 403 again: one call, and the reason."""
    calls: list[Request] = []

    def forbid(request: Request) -> Response:
        calls.append(request)
        return Response(403, b"no access")

    lab.fault = forbid
    with pytest.raises(AgentError, match="403 no access"):
        bucket_of(lab).read("x")
    assert len(calls) == 1


def test_a_refusal_may_pass_while_the_account_s_role_is_new(lab: AgentLab) -> None:
    """A role counts minutes after it was given: asked again within the call's time, and no longer."""
    calls: list[Request] = []

    def late(request: Request) -> Response | None:
        calls.append(request)
        return Response(403, b"no access") if len(calls) < 4 else None

    lab.fault = late
    assert bucket_of(lab, granted=time.time() - 60).read("x") is None
    assert len(calls) == 4
    lab.fault = lambda _request: Response(403, b"no access")
    with pytest.raises(TransientError, match="may not count yet"):
        bucket_of(lab, granted=time.time() - 60).read("x", timeout=0.5)


def test_a_role_that_was_given_long_ago_is_not_waited_for(lab: AgentLab) -> None:
    """Ten minutes later, and on another's bucket, a refusal is one: one call, and the reason."""
    calls: list[Request] = []

    def forbid(request: Request) -> Response:
        calls.append(request)
        return Response(403, b"no access")

    lab.fault = forbid
    fresh = bucket_of(lab, granted=time.time())
    assert 590 < fresh.retry_timeout <= 600
    for bucket in (bucket_of(lab, granted=time.time() - 601), fresh.other("anothers")):
        assert bucket.retry_timeout == 60
        with pytest.raises(AgentError, match="403 no access") as refused:
            bucket.read("x")
        assert not isinstance(refused.value, TransientError)
    assert len(calls) == 2


def test_refused_token_is_renewed(lab: AgentLab) -> None:
    """After 401 the next try carries a new token."""
    bucket = bucket_of(lab)
    assert bucket.read("x") is None
    refused: list[str] = []

    def refuse_once(request: Request) -> Response | None:
        if refused:
            return None
        refused.append(request.headers["authorization"])
        return Response(401, b"")

    lab.fault = refuse_once
    assert bucket.read("x") is None
    assert refused == ["Bearer lab"]
    assert lab.metadata.tokens == 2


def test_retries_end_within_their_time(lab: AgentLab) -> None:
    """A service that stays away costs no more than the seconds that were given."""
    lab.fault = lambda _request: Response(500, b"")
    begun = time.monotonic()
    with pytest.raises(TransientError):
        bucket_of(lab).write("x", b"1", timeout=2)
    assert time.monotonic() - begun < 30


def test_list_reads_every_page(lab: AgentLab) -> None:
    """More names than fit on one page are all listed."""
    for number in range(1005):
        lab.put(f"many/{number:05d}", b"")
    assert len(bucket_of(lab).list("many/")) == 1005


def test_create_only_write_refuses_the_second(lab: AgentLab) -> None:
    """Generation 0 means that the object must not exist."""
    bucket = bucket_of(lab)
    bucket.write("one", b"1", 0)
    with pytest.raises(PreconditionError):
        bucket.write("one", b"2", 0)
    held = bucket.read("one")
    assert held is not None
    assert held.data == b"1"


def test_attempt_whose_answer_was_lost_is_ours_all_the_same(lab: AgentLab) -> None:
    """A create that succeeded, but whose answer was lost, meets itself when tried again."""
    attempts = AttemptStore(settings_of(lab), bucket_of(lab))
    lost: list[str] = []

    def lose_answer(request: Request) -> Response | None:
        name = request.query.get("name", "")
        if request.method == "POST" and not lost:
            lost.append(name)
            lab.put(name, request.body)
            return Response(503, b"")
        return None

    lab.fault = lose_answer
    wanted = Attempt(1, None, None, 0, "first", 0)
    assert attempts.create(wanted) == wanted
    assert attempts.create(Attempt(1, 7, 1, 0, "second", 1)) == wanted


def test_full_disk_loses_no_line_for_the_bucket() -> None:
    """When log/job.log cannot be written, the lines still wait for the bucket, and the trouble is reported."""
    log = JobLog(Path("/dev/full"), VirtualClock())
    log.write(b"one line\n")

    assert log.waiting() == ([], b"one line\n")
    assert "No space left" in log.message


def test_segments_end_at_lines() -> None:
    """A segment ends with a whole line, and nothing is lost between two."""
    log = JobLog(Path("/dev/null"), VirtualClock())
    text = b"".join(b"line %d\n" % number for number in range(60000))
    log.write(text)

    full, growing = log.waiting()

    assert b"".join([*full, growing]) == text
    assert all(segment.endswith(b"\n") and len(segment) <= SEGMENT for segment in full)


def test_the_first_lines_of_a_start_are_in_the_bucket_within_seconds(lab: AgentLab) -> None:
    """Of a job that writes each second; then it is one upload in a heartbeat, and a restart is quick again."""
    settings = replace(settings_of(lab), heartbeat_interval=30.0)
    log, bucket = JobLog(Path("/dev/null"), VirtualClock()), bucket_of(lab)
    shipper = LogShipper(settings, bucket, log)
    log.begun = shipper.hasten
    name = f"logs/g{settings.incarnation}/w0/000000.log"
    lines = [b"line %03d\n" % number for number in range(600)]

    def uploads(seconds: int) -> list[int]:
        """Return at which seconds there was an upload, with a line in each second of virtual time."""
        found, due, size = [], 0.0, len(bucket.read(name).data) if bucket.read(name) else 0
        for second in range(seconds):
            log.write(lines.pop(0))
            if second >= due:
                shipper.ship_new()
                due = second + shipper.pause
            held = bucket.read(name)
            if held is not None and len(held.data) > size:
                found.append(second)
                size = len(held.data)
        return found

    assert uploads(123) == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    log.begin_tail()
    assert uploads(10) == [0, 1, 3, 7]


def test_a_line_after_a_silence_is_uploaded_at_once(lab: AgentLab) -> None:
    """A look that finds nothing costs no call."""
    settings = replace(settings_of(lab), heartbeat_interval=30.0)
    log = JobLog(Path("/dev/null"), VirtualClock())
    shipper = LogShipper(settings, bucket_of(lab), log)
    for _ in range(8):
        log.write(b"line\n")
        shipper.ship_new()
    assert shipper.pause == 30.0
    shipper.ship_new()
    assert shipper.pause == 1.0
    asked: list[str] = []
    lab.fault = lambda request: asked.append(request.path)
    for _ in range(40):
        shipper.ship_new()
    assert asked == []
    log.write(b"line\n")
    shipper.ship_new()
    assert (len(asked), shipper.pause) == (1, 1.0)


def test_heartbeat_is_written_though_the_disk_refuses(lab: AgentLab) -> None:
    """A state folder that cannot be written keeps no heartbeat back."""
    settings = settings_of(lab)
    settings.layout.status.mkdir(parents=True)
    heartbeat = HeartbeatContent(settings, VirtualClock())
    heartbeat.warn("logs", "disk is full")

    with pytest.raises(OSError, match="directory"):
        HeartbeatWriter(settings, bucket_of(lab), heartbeat, VirtualClock()).report()

    assert lab.json(".tpuctl/heartbeat/1/0")["message"] == "logs: disk is full"


@pytest.fixture
def refused(lab: AgentLab, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let an object of the bucket change twice a second at most; return the names of refused changes."""
    objects, found = lab.storage.objects, list[str]()
    check = objects.check_rate

    def recorded(bucket: str, name: str) -> None:
        try:
            check(bucket, name)
        except Exception:
            found.append(name)
            raise

    monkeypatch.setattr(objects, "_interval", 0.5)
    monkeypatch.setattr(objects, "check_rate", recorded)
    return found


def test_a_machine_never_reports_sooner_than_its_object_may_change(lab: AgentLab, refused: list[str]) -> None:
    """Neither after its startup script, nor when phases follow each other at once: the job would wait for it."""
    name = heartbeat_name(1, 0)
    lab.put(name, json.dumps({"phase": "boot", "script": True, "at": time.time()}).encode())
    lab.machine(HEARTBEAT_SECONDS=0.5, TARGET_STEPS="", COMMAND="sleep 0.1").run_to_end()
    assert lab.json(name)["phase"] == "uncommitted"
    assert name not in refused


def test_what_another_thread_has_reported_meanwhile_is_not_reported_twice(lab: AgentLab) -> None:
    """The first thread that comes reports the start of a job; what comes with it is in one report."""
    heartbeat, reporter = reporting(lab, VirtualClock())
    heartbeat.set(phase="run", attempts=1)
    reporter.report()
    before = len(lab.writes)
    reporter.report(at_once=True)
    assert len(lab.writes) == before
    heartbeat.set(attempts=2)
    reporter.report(at_once=True)
    assert lab.json(heartbeat_name(1, 0))["attempts"] == 2
    reporter.report()
    assert len(lab.writes) == before + 2


def test_the_count_of_an_earlier_release_is_continued(lab: AgentLab) -> None:
    """Its report and its state/job.json call the attempts `starts`."""
    lab.put(heartbeat_name(1, 0), json.dumps({"attempt": 3, "starts": 4}).encode())
    _, reporter = reporting(lab, VirtualClock())
    reporter.report()
    assert lab.json(heartbeat_name(1, 0))["attempts"] == 4
    layout = settings_of(lab).layout
    layout.job.write_text(json.dumps({"attempt": 3, "starts": 4}))
    assert attempt_record.load(layout).attempts == 4


def test_who_finds_the_last_report_written_waits_for_the_call_that_follows_it(lab: AgentLab) -> None:
    """The agent ends then: the thread that has written the report would end before it calls the controller."""
    asked, answered = threading.Event(), threading.Event()
    heartbeat, reporter = reporting(lab, VirtualClock())

    def held(request: Request) -> Response | None:
        if request.query.get("name", "").startswith(WAKE):
            asked.set()
            assert answered.wait(10)
        return None

    lab.fault = held
    heartbeat.set(phase="done")
    writes, last = (threading.Thread(target=partial(reporter.report, at_once=True)) for _ in range(2))
    writes.start()
    assert asked.wait(10)
    last.start()
    last.join(0.3)
    assert last.is_alive()
    answered.set()
    last.join(10)
    writes.join(10)
    assert lab.json(f"{WAKE}1")["phase"] == "done"


def test_the_first_phases_are_one_report(lab: AgentLab) -> None:
    """What passes at once is not worth a write, after which the next one has to wait."""

    def others_follow() -> None:
        heartbeat.set(phase="restore")
        heartbeat.set(phase="run")
        reporter.report(at_once=True)

    heartbeat, reporter = reporting(lab, ClockWithNews(others_follow))
    reporter.report()
    assert [write for write in lab.writes if "heartbeat" in write] == [f"POST {heartbeat_name(1, 0)}"]


def test_a_bucket_with_a_prefix_sees_and_writes_only_what_lies_below_it(
    lab: AgentLab, tmp_path: Path
) -> None:
    """Names go in and come back without it, whichever call brings them; the whole bucket is another one."""
    whole = bucket_of(lab)
    environ = {"STORAGE_EMULATOR_HOST": lab.url, "TPUCTL_PREFIX": "runs/a/"}
    own = JobBucket.from_environ(BUCKET, environ, Metadata(lab.metadata.address))
    whole.write("top", b"")
    whole.write("runs/ab/other", b"")
    generation = own.write("x/one", b"1", 0)
    with pytest.raises(PreconditionError):
        own.write("x/one", b"2", 0)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"s")
    large.write_bytes(b"l" * (storage.LARGE + 1))
    own.upload("two", small, 1)
    own.upload("y/large", large, storage.LARGE + 1)

    assert own.list("") == ["two", "x/one", "y/large"]
    assert own.list("x/") == ["x/one"]
    assert own.level("") == (["two"], ["x/", "y/"])
    assert own.sizes("x/") == {"x/one": 1}
    assert [item["name"] for item in own.objects("y/")] == ["y/large"]
    items, folders = own.first_page("", deep=False)
    assert ([item["name"] for item in items], folders) == (["two"], ["x/", "y/"])
    held = own.read("x/one")
    assert held is not None
    assert (held.data, held.generation) == (b"1", generation)
    assert own.read("top") is None
    again = tmp_path / "again"
    own.download("y/large", again, storage.LARGE + 1)
    assert again.read_bytes() == large.read_bytes()
    own.delete("two")
    expected = ["runs/a/x/one", "runs/a/y/large", "runs/ab/other", "top"]
    held_there = [name for name in whole.list("") if not name.startswith("bundles/")]
    assert held_there == expected
    assert own.other(BUCKET).list("") == whole.list("")
