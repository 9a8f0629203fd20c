"""Notifications: what is due, an outbox that loses and repeats nothing, failing receivers, secret addresses."""

import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from orchestrator.clock import SystemClock, VirtualClock
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.level import Level
from orchestrator.domain.observation import Present
from orchestrator.domain.plan import Outcome
from orchestrator.domain.ports import StoredObject
from orchestrator.domain.spec import NOTIFICATION_KINDS as KINDS
from orchestrator.domain.spec import NotifySpec
from orchestrator.engine.publish import receivers
from orchestrator.engine.publish.outbox import OUTBOX, PAUSES, SENT, Outbox, OutboxThread
from orchestrator.engine.publish.receivers import Apprise, Hook, Webhook, try_all
from orchestrator.errors import PreconditionError, TransientError
from orchestrator.planning.notifications import Notification, due, stopped
from tests.kit.records import changed, record_of
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import world

SPEC = a_spec()
SECRET = "T0/B1/the-secret-part"


class FailingBucket:
    """A bucket in memory; *broken* refuses, *cut* ends the process at a write, as a kill would."""

    def __init__(self):
        self.held, self.broken, self.cut = {}, False, ""

    def _check(self):
        if self.broken:
            raise TransientError("the bucket does not answer")

    def list(self, prefix):
        self._check()
        rows = sorted(self.held.items())
        return [StoredObject(n, len(d), 1, 0.0, d) for n, d in rows if n.startswith(prefix)]

    def read(self, name, offset=0):
        self._check()
        return StoredObject(name, 1, 1, 0.0, self.held[name]) if name in self.held else None

    def write(self, name, data, if_generation=None):
        self._check()
        if self.cut and name.startswith(self.cut):
            raise KeyboardInterrupt
        if if_generation == 0 and name in self.held:
            raise PreconditionError("exists")
        self.held[name] = data
        return 1

    def delete(self, name, if_generation=None, *, patient=True):
        self._check()
        self.held.pop(name, None)


class Ear:
    """A receiver that remembers; *fails* tries fail first."""

    def __init__(self, name="ear", fails=0, kinds=KINDS):
        self.name, self.fails, self.kinds, self.received = name, fails, kinds, []

    def wants(self, notification):
        return notification.kind in self.kinds

    def send(self, notification):
        if self.fails:
            self.fails -= 1
            raise TransientError(f"{self.name} is deaf")
        self.received.append(notification.id)


def notification(number=1, kind="done"):
    """Return a notification to send."""
    return Notification(f"d-{kind}-{number}", kind, 5.0, "d", "text", {"n": number})


def outbox(bucket, *ears, clock=None, said=None):
    """Return an outbox that notifies *ears*; its pauses are the longest ones."""
    said = [] if said is None else said
    return Outbox(bucket, ears, clock or VirtualClock(), said.append, random=lambda: 0.0)


def test_a_notification_is_sent_once_however_often_it_is_due():
    """Every pass finds it again; so does the next loop, on another computer."""
    bucket, ear = FailingBucket(), Ear()
    out = outbox(bucket, ear)
    for _ in range(3):
        out.add([notification(1), notification(2)])
        assert out.deliver() is None
    again = outbox(bucket, ear)
    again.add([notification(1), notification(2), notification(3)])
    again.deliver()
    assert ear.received == ["d-done-1", "d-done-2", "d-done-3"]
    assert sorted(bucket.held) == [SENT + f"d-done-{n}" for n in (1, 2, 3)]


def test_a_receiver_that_breaks_ends_no_notifications():
    """Foreign code may raise anything: it is reported once, without its text, and retried; others are notified."""

    class Broken(Ear):
        def send(self, notification):
            if self.fails:
                self.fails -= 1
                raise RuntimeError(SECRET)
            super().send(notification)

    broken, ear, said, clock = Broken("broken", fails=2), Ear(), [], VirtualClock()
    out = outbox(FailingBucket(), broken, ear, clock=clock, said=said)
    out.add([notification()])
    while (pause := out.deliver()) is not None:
        clock.advance(pause)
    assert broken.received == ear.received == ["d-done-1"]
    assert [event.message for event in said] == ["no notification of done was sent: broken: RuntimeError"]


@pytest.mark.parametrize("cut", [OUTBOX, SENT, ""])
def test_a_killed_loop_forgets_nothing(cut):
    """Killed before the outbox, after sending, before sending: the next loop sends it, with the same id."""
    bucket, ear = FailingBucket(), Ear(fails=0 if cut else 1)
    bucket.cut = cut
    out = outbox(bucket, ear)
    try:
        out.add([notification()])
        out.deliver()
    except KeyboardInterrupt:
        bucket.cut = ""
    second = outbox(bucket, ear)
    second.add([notification()])
    second.deliver()
    assert set(ear.received) == {"d-done-1"}
    assert list(bucket.held) == [SENT + "d-done-1"]


def test_a_failing_target_is_tried_again_with_growing_pauses_and_others_are_not_notified_twice():
    """What fails is said once, not at every try."""
    clock, bucket, said = VirtualClock(), FailingBucket(), []
    deaf, good = Ear("deaf", fails=12), Ear("good")
    out = outbox(bucket, deaf, good, clock=clock, said=said)
    out.add([notification()])
    pauses = []
    while (pause := out.deliver()) is not None:
        pauses.append(pause)
        clock.advance(pause)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2.0, PAUSES.longest)
    assert (deaf.received, good.received) == (["d-done-1"], ["d-done-1"])
    assert [event.message for event in said] == ["no notification of done was sent: deaf is deaf"]


def test_a_bucket_that_refuses_loses_nothing():
    """The next pass brings the same notices."""
    bucket, ear = FailingBucket(), Ear()
    out = outbox(bucket, ear)
    bucket.broken = True
    out.add([notification()])
    assert out.deliver() is None
    bucket.broken = False
    out.add([notification()])
    out.deliver()
    assert ear.received == ["d-done-1"]


def test_a_target_that_does_not_want_a_kind_is_not_notified():
    """A notice that nobody wants is over at once."""
    bucket, ear = FailingBucket(), Ear(kinds=("failed",))
    out = outbox(bucket, ear)
    out.add([notification(1, "done"), notification(1, "failed")])
    assert out.deliver() is None
    assert ear.received == ["d-failed-1"]


def test_a_slow_receiver_holds_no_pass_up():
    """Another thread sends notifications; the end waits for a bounded time and says what is left."""
    hears = threading.Event()

    class Slow(Ear):
        def send(self, reported):
            assert hears.wait(60)
            super().send(reported)

    slow = Slow()
    postman = OutboxThread(outbox(FailingBucket(), slow, clock=SystemClock()))
    postman.add([notification()])
    assert slow.received == []
    assert [remaining.id for remaining in postman.end(0.05)] in ([], ["d-done-1"])
    hears.set()
    postman._thread.join(60)
    assert slow.received == ["d-done-1"]


def heartbeat(phase=Phase.RUN, incarnation=1, **more):
    """Return a worker's heartbeat."""
    return Heartbeat(incarnation, 0, phase, 990.0, **more)


def reported(record, *heartbeats, outcome=None, usd_so_far=0.0, spec=SPEC, at=1000.0):
    """Return what is due, by kind."""
    observed = world(heartbeats=Present(heartbeats), observed_at=at)
    return {one.kind: one for one in due(spec, observed, record, outcome, "why", usd_so_far)}


FIRST = record_of(started_at=100.0, incarnation=1, zone="z")


def test_what_a_notification_says_and_its_id():
    """The id names the life of the deployment and the thing, so it is the same in each pass."""
    assert reported(FIRST) == {}
    assert reported(FIRST, heartbeat())["up"].id == f"{SPEC.name}-100-up"
    second = changed(FIRST, incarnation=2, preemptions=1)
    assert reported(second)["preempted"].id.endswith("-preempted-1")
    assert set(reported(second, heartbeat())) == {"preempted"}, "the machine before proves nothing"
    resumed = reported(second, heartbeat(incarnation=2, resumed_from=40))["resumed"]
    assert (resumed.id, resumed.data["resumed_from"]) == (f"{SPEC.name}-100-resumed-2", 40)
    again = changed(FIRST, started_at=200.0)
    assert reported(again, heartbeat())["up"].id != reported(FIRST, heartbeat())["up"].id


def test_the_budget_is_notified_at_80_percent_and_at_the_stop():
    """Not before."""
    spec = a_spec(watch__budget_usd=10.0)
    assert not reported(FIRST, usd_so_far=7.99, spec=spec)
    due_now = reported(FIRST, usd_so_far=8.0, spec=spec)["budget"]
    assert (due_now.id[-10:], due_now.data) == ("-budget-10", {"usd": 8.0, "budget_usd": 10.0})
    assert reported(FIRST, outcome=Outcome.LIMIT_REACHED)["limit-reached"].message == "stopped: why"


def test_a_stall_is_notified_once_for_each_last_step():
    """By the last step's time, with the deployment's own limit."""
    last = {"progress_at": 1000.0, "step": 7}
    assert "stalled" not in reported(FIRST, heartbeat(**last), at=1000.0 + SPEC.watch.stall - 1)
    found = reported(FIRST, heartbeat(**last), at=1000.0 + SPEC.watch.stall)["stalled"]
    assert found.id == reported(FIRST, heartbeat(**last), at=9000.0 + SPEC.watch.stall)["stalled"].id
    assert "the last one was 7" in found.message


def test_a_machine_with_another_time_in_each_heartbeat_is_notified_once():
    """Else it would have a webhook called every few seconds, and a program started."""
    now, made = 1.0e9, changed(FIRST, requested_at=1.0e9 - 3.5 * SPEC.watch.stall)
    times = [now - SPEC.watch.stall - 100.0 * number for number in range(2000)]
    found = {reported(made, heartbeat(progress_at=at, step=7), at=now)["stalled"].id for at in times}
    assert len(found) <= 4


@pytest.mark.parametrize(("outcome", "kind"), [(Outcome.DONE, "done"), (Outcome.FAILED, "failed")])
def test_the_end_is_notified_and_a_token_in_its_reason_is_masked(outcome, kind):
    """A reason may come from a program's output."""
    (found,) = due(SPEC, world(heartbeats=Present(())), FIRST, outcome, "said hf_" + "Q" * 34, 0.0)
    assert found.kind == kind
    assert "QQ" not in found.message
    assert Notification.from_json(found.to_json()) == found


def test_a_loop_that_ends_with_an_error_is_notified_once_an_hour():
    """On the VM it is started again each minute."""
    error = TransientError("no capacity")
    ids = [stopped(SPEC, FIRST, error, 3600.0 * 400 + seconds).id for seconds in (1, 60, 3599, 3600)]
    assert len(set(ids[:3])) == 1
    assert ids[3] not in ids[:3]
    assert "the watcher has stopped: no capacity" in stopped(SPEC, FIRST, error, 1.0).message


# Receivers.


class Web:
    """A web server that answers *status*."""

    def __init__(self, status=204, location=""):
        self.bodies, web = [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                web.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.send_header("Location", location)
                self.end_headers()

            def log_message(self, *_):
                """Keep the test's output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_webhook_gets_the_notice_as_json():
    """With its id as a header too."""
    with Web() as web:
        Webhook(web.url, "1", KINDS).send(notification())
    assert web.bodies == [json.loads(notification().sent_json())]


@pytest.mark.parametrize("status", [302, 307, 400, 404, 500, 503])
def test_a_webhook_that_refuses_or_leads_elsewhere_is_a_failure_without_its_address(status):
    """A redirect is not followed: it could lead to plain http, or to another host."""
    with Web() as other, Web(status, other.url) as web:
        hook = Webhook(web.url, "1", KINDS)
        (error,) = try_all([hook], notification()).values()
    assert other.bodies == []
    assert f"answers {status}" in error.message
    assert "secret-part" not in error.message + hook.name


@pytest.mark.parametrize(
    "url", ["http://example.org/x", "file:///etc/passwd", "ftp://h/x", "https://[bad", "x"]
)
def test_nothing_but_https_is_posted_to(url):
    """Loopback excepted; the reason names no more than the host."""
    (error,) = try_all([Webhook(url, "1", KINDS)], notification()).values()
    assert error is not None
    assert "passwd" not in error.message


def test_a_closed_port_is_a_failure_without_the_address():
    """A closed port."""
    with Web() as web:
        pass
    (error,) = try_all([Webhook(web.url, "1", KINDS)], notification()).values()
    assert "secret-part" not in str(error)


def test_a_hook_is_a_program_that_reads_the_notification(tmp_path, monkeypatch):
    """No shell; its folder is the deployment file's; its end and its time count."""
    (tmp_path / "tell").write_text(
        '#!/bin/sh\ncat >told; echo "$@" >words; echo $TPUCTL_NOTIFICATION_KIND >>words\n'
    )
    (tmp_path / "tell").chmod(0o755)
    Hook("done", "./tell '$(touch pwned)' ;x", tmp_path).send(notification())
    assert json.loads((tmp_path / "told").read_text())["id"] == "d-done-1"
    assert (tmp_path / "words").read_text() == "$(touch pwned) ;x\ndone\n"
    assert not (tmp_path / "pwned").exists()
    monkeypatch.setattr(receivers, "HOOK_TIMEOUT", 0.2)
    for command, why in (
        ("false", "exited with status 1$"),
        (
            "sh -c 'echo first >&2; echo no such file: model >&2; exit 3'",
            "status 3: first no such file: model",
        ),
        (f"sh -c 'echo {'x' * 9000} end >&2; exit 3'", "status 3: x{300,400} end$"),
        ("./none", "cannot be started"),
        ("sleep 60", "did not end"),
    ):
        with pytest.raises(TransientError, match=why):
            Hook("done", command, tmp_path).send(notification())


def test_apprise_tells_a_service_of_its_own():
    """The library posts to the web server here; an address that it does not know is a failure without it."""
    pytest.importorskip("apprise")
    with Web(200) as web:
        Apprise(web.url.replace("http://", "json://"), "1", KINDS).send(notification())
    assert (web.bodies[0]["title"], web.bodies[0]["message"]) == ("d: done", "text")
    (error,) = try_all([Apprise("nobody-knows://secret-part", "1", KINDS)], notification()).values()
    assert "does not know this address" in error.message
    assert "secret-part" not in str(error)


@pytest.mark.parametrize(
    ("url", "field", "harm"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "attachments", "<"),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", "text", "<!"),
        ("discord://1234567890/abcdefghijklmnop", "content", "@everyone"),
        ("discord://1234567890/abcdefghijklmnop", "content", "@here"),
        ("discord://1234567890/abcdefghijklmnop", "content", "<@12"),
        ("mmost://localhost/abcdefghijklmnopqrstuvwxyz", "text", "]("),
    ],
)
def test_no_text_of_a_machine_is_markup_for_a_chat(monkeypatch, url, field, harm):
    """It calls nobody, shows no link under another name, and breaks no message, which is then refused."""
    pytest.importorskip("apprise")
    sent = []

    def post(*_, **said):
        sent.append(json.loads(said["data"]) if isinstance(said["data"], str | bytes) else said["data"])
        return SimpleNamespace(status_code=200, content=b"ok", text="ok", headers={})

    monkeypatch.setattr("requests.post", post)
    monkeypatch.setattr("requests.request", lambda _method, *args, **said: post(*args, **said))
    text = "failed: <!channel> <https://e.example|log in> @everyone @here <@12> [log in](https://e.example)"
    Apprise(url, "1", KINDS).send(replace(notification(), message=text))
    (body,) = sent
    shown = body[field][0]["text"] if field == "attachments" else body[field]
    assert "log in" in shown
    assert harm not in shown


def test_without_apprise_the_extra_is_named(monkeypatch):
    """It is no dependency of the rest."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    (error,) = try_all([Apprise("json://h/secret-part", "1", KINDS)], notification()).values()
    assert error.hint == "run: pip install 'tpuctl[notify]'"


def findings_of(notify, **changes):
    """Return the findings about notifications in a file with these."""
    spec = replace(SPEC, notify=notify, **changes)
    return [found for found in run_rules(spec, load_catalog()) if found.setting.startswith("notify")]


@pytest.mark.parametrize(
    ("notify", "key"),
    [
        (NotifySpec(webhooks=("http://example.org/x",)), "notify.webhooks[0]"),
        (NotifySpec(webhooks=("env://OK", f"https://hooks.slack.com/services/{SECRET}")), "notify.webhooks[1]"),
        (NotifySpec(webhooks=("https://user:secret-part@h/",)), "notify.webhooks[0]"),
        (NotifySpec(webhooks=("https://h/?token=secret-part",)), "notify.webhooks[0]"),
        (NotifySpec(webhooks=("secret-part",)), "notify.webhooks[0]"),
        (NotifySpec(apprise=("tgram://secret-part/1",)), "notify.apprise[0]"),
        (NotifySpec(hooks={"done": "'unclosed"}), "notify.hooks.done"),
    ],
)  # fmt: skip
def test_an_address_that_is_a_secret_does_not_stand_in_the_file(notify, key):
    """It is refused without being shown; references and plain https addresses are fine."""
    (found,) = findings_of(notify)
    assert (found.setting, found.level) == (key, Level.STOP)
    assert "secret-part" not in found.message + found.hint
    fine = NotifySpec(("https://h.example/tpu", "secret://a", "env://B", "http://127.0.0.1:1/"), ("env://C",))
    assert not findings_of(fine)


def test_what_the_loop_on_the_vm_cannot_have_is_a_warning():
    """Variables, programs and libraries of this computer."""
    notify = NotifySpec(("env://A", "secret://b"), ("secret://c",), {"done": "./x"})
    found = {f.setting: f.level for f in findings_of(notify, watch=replace(SPEC.watch, on_vm=True))}
    assert found == dict.fromkeys(("notify.webhooks", "notify.apprise", "notify.hooks"), Level.WARN)
    assert not findings_of(notify)
