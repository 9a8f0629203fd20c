"""What a failed notification, and a machine that could not be given back, advise to do next."""

import sys
import urllib.error
from types import ModuleType, SimpleNamespace

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.domain.observation import Operation, OperationResult, Vm, VmState
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.spec import NOTIFICATION_KINDS
from orchestrator.engine.adopt import Adoption
from orchestrator.engine.publish import receivers
from orchestrator.engine.publish.receivers import Apprise, Hook, Webhook
from orchestrator.errors import Retry, TpuctlError, TransientError
from orchestrator.planning.notifications import Notification

NOTICE = Notification("d-done-1", "done", 1.0, "d", "text")


def hint_of(receiver):
    """Return the hint of the error that sending meets."""
    with pytest.raises(TpuctlError) as caught:
        receiver.send(NOTICE)
    return caught.value.hint


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (urllib.error.HTTPError("https://h/x", 404, "", None, None), "compare its address"),
        (OSError("no route"), "check the network"),
    ],
)
def test_a_webhook_that_fails_says_what_to_look_at(monkeypatch, failure, advice):
    """And how to try it."""

    def refuse(*_, **__):
        raise failure

    monkeypatch.setattr(receivers, "_opener", lambda _: SimpleNamespace(open=refuse))
    hint = hint_of(Webhook("https://h/secret-part", "1", NOTIFICATION_KINDS))
    assert hint.startswith(advice)
    assert hint.endswith("then try it: tpuctl notify test")
    assert "secret-part" not in hint


def test_an_address_without_https_names_the_beginning_that_it_needs():
    """It is refused before anything is sent."""
    assert "https://" in hint_of(Webhook("http://example.org/secret-part", "1", NOTIFICATION_KINDS))


@pytest.mark.parametrize(("known", "advice"), [(False, "write the address as"), (True, "check the token")])
def test_a_service_of_apprise_that_fails_says_what_to_look_at(monkeypatch, known, advice):
    """Either its address has a wrong form, or the service refuses it."""
    service = SimpleNamespace(add=lambda _: known, notify=lambda **_: False)
    library = ModuleType("apprise")
    library.Apprise, library.NotifyFormat = lambda: service, SimpleNamespace(TEXT="text")
    monkeypatch.setitem(sys.modules, "apprise", library)
    hint = hint_of(Apprise("json://h/secret-part", "1", NOTIFICATION_KINDS))
    assert hint.startswith(advice)
    assert hint.endswith("tpuctl notify test")


@pytest.mark.parametrize(
    ("command", "advice"),
    [("false", "run it by hand"), ("./none", "its first word"), ("sleep 60", "let it do less")],
)
def test_a_hook_that_fails_says_what_to_look_at(tmp_path, monkeypatch, command, advice):
    """Its program, its folder, or its time."""
    monkeypatch.setattr(receivers, "HOOK_TIMEOUT", 0.2 if "sleep" in command else 30.0)
    hint = hint_of(Hook("done", command, tmp_path))
    assert advice in hint
    assert hint.endswith("tpuctl notify test")


@pytest.mark.parametrize(("cloud_says", "advice"), [("", "run again: tpuctl down"), ("wait", "wait")])
def test_a_machine_that_could_not_be_given_back_names_the_command_that_tries_again(cloud_says, advice):
    """Unless the cloud's own refusal has a better hint."""
    failed = Operation("o", Kind.VM, Verb.UPDATE, "v", "z")
    vms = SimpleNamespace(
        expel=lambda *_: failed,
        poll=lambda o: OperationResult(o, True, Retry.TRANSIENT, message="busy", hint=cloud_says),
    )
    deployment = SimpleNamespace(
        cloud=SimpleNamespace(vms=vms, nodes=None), clock=VirtualClock(),
        journal=SimpleNamespace(intend=lambda *_, **__: "e"),
    )  # fmt: skip
    with pytest.raises(TransientError, match="VM v: busy") as caught:
        Adoption(deployment, "key").give_back(Vm("v", "z", VmState.RUNNING))
    assert caught.value.hint.endswith(advice)
