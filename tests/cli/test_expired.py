"""Deployments whose time is over while nobody watched: the next command of this computer ends them."""

from dataclasses import replace

import pytest

from orchestrator.engine.reconcile.reconciler import Reconciler
from tests.kit.user import User

TTL = 2 * 3600.0


def test_the_next_command_ends_an_expired_deployment(cloud):
    """A command about another deployment takes its machines away, and not earlier; the data stays."""
    abandoned = User(cloud, watch__ttl="2h")
    other = User(cloud, "other", beside=abandoned, name="other")
    abandoned.up()
    cloud.wait(TTL - 600)
    other.run("status")
    assert len(cloud.nodes()) == 1

    cloud.wait(1200)
    said = other.run("status")

    assert "demo: its time to live of 2h is over; what is left of its machines is deleted now" in said.err
    assert "nothing was left" not in said.err
    cloud.wait(60)
    assert cloud.nodes() == {}
    assert len(cloud.buckets()) == 1


def test_machines_that_had_gone_by_themselves_are_not_said_to_be_deleted(cloud):
    """A safety net was quicker than the next command."""
    abandoned = User(cloud, watch__ttl="2h")
    other = User(cloud, "other", beside=abandoned, name="other")
    abandoned.up()
    cloud.wait(TTL + 60)
    cloud.model.tpu.delete("europe-west4-b", "demo-tpu-g1")
    cloud.wait(60)
    assert "\n  nothing was left: a TPU deletes itself" in other.run("status").err


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4])
def test_a_bucket_that_takes_no_more_holds_up_no_command_about_another_deployment(cloud, taken):
    """One try, whatever it fails at: lease, record or journal. Then the command does its own work."""
    abandoned = User(cloud, watch__ttl="2h")
    other = User(cloud, "other", beside=abandoned, name="other")
    abandoned.up()
    cloud.wait(TTL + 60)
    remaining = [taken]

    def full(method, response):
        if method != "storage.objects.insert":
            return response
        remaining[0] -= 1
        return response if remaining[0] >= 0 else replace(response, status=503)

    cloud.distort = full
    began = cloud.clock.monotonic()
    said = other.run("status", timeout=600)
    assert remaining[0] < 0, "the bucket took all there was"
    assert (said.code, cloud.clock.monotonic() - began < 60) == (0, True)
    assert "not now: " in said.err
    cloud.distort = lambda method, response: response
    cloud.wait(120)
    other.run("status")
    cloud.wait(120)
    assert cloud.nodes() == {}


def test_an_unforeseen_fault_in_its_pass_ends_no_command_about_another_deployment(cloud, monkeypatch):
    """It is said, and the command does its own work."""
    abandoned = User(cloud, watch__ttl="2h")
    other = User(cloud, "other", beside=abandoned, name="other")
    abandoned.up()
    cloud.wait(TTL + 60)

    def faulty(self):
        raise KeyError("a state of tomorrow")

    monkeypatch.setattr(Reconciler, "one_pass", faulty)
    said = other.run("status")
    assert (said.code, "  not now: a bug in tpuctl" in said.err) == (0, True)
