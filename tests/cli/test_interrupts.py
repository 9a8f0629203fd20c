"""Ctrl-C: what a command says then, and that a second one does not wait."""

import signal

import pytest

from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer with a deployment file; creating a TPU takes its time."""
    with VirtualCloud(tmp_path, latency="realistic").open() as cloud:
        yield User(cloud)


def press(times):
    """Return what presses Ctrl-C in the middle of a call."""
    return lambda: [signal.raise_signal(signal.SIGINT) for _ in range(times)]


def test_up_says_that_what_was_asked_for_is_billed(user):
    """The TPU that was asked for goes on being made; `status` and `explain` name the same command to go on."""
    said = user.run("up", interrupt=5)
    assert said.code == 130
    assert "interrupted; what was requested is still being created, and is billed" in said.err
    assert "next:  go on with `tpuctl watch`, or delete the machines with `tpuctl down`" in said.err
    assert "Run: tpuctl watch" in " ".join(user.run("status").out.split())
    assert "do    tpuctl watch" in user.run("explain").out
    assert len(user.cloud.nodes()) == 1
    user.up()
    assert len(user.cloud.nodes()) == 1


def test_down_says_that_it_is_not_done(user):
    """Typed again it ends."""
    user.up()
    said = user.run("down", "--yes", interrupt=0)
    assert said.code == 130
    assert "next:  tpuctl down" in said.err
    user.down()
    assert user.cloud.nodes() == {}


def test_a_ctrl_c_before_the_question_of_down_deletes_nothing(user, monkeypatch):
    """What was not approved does not go."""

    def pressed(*_, **__):
        raise KeyboardInterrupt

    user.up()
    with monkeypatch.context() as looking:
        looking.setattr("orchestrator.app.down._announce", pressed)
        said = user.run("down", "--yes")
    assert (said.code, user.cloud.asked("tpu.nodes.delete")) == (130, [])
    assert "interrupted; nothing was deleted" in said.err


@pytest.mark.parametrize(("times", "made"), [(1, 1), (2, 0)])
def test_a_second_ctrl_c_ends_a_watch_at_once(user, times, made):
    """The first one lets a look end, with all that it does; the second one leaves in the middle."""
    user.up()
    user.cloud.model.preempt(*user.cloud.in_use(), notice=False)
    before = len(user.cloud.asked("tpu.nodes.create"))
    said = user.run("watch", meanwhile={"tpu.nodes.create": press(times)})
    assert said.code == 130
    assert "stopped watching; everything keeps running" in said.err
    assert len(user.cloud.asked("tpu.nodes.create")) == before + made
    assert "another tpuctl" not in user.watch(5).err
