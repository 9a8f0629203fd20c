"""Machines that come up and never report, such as those whose service account may not use the bucket."""

from orchestrator.planning.tpu.never_reported import START_TIMEOUT

HOUR = 3600.0


def test_a_grant_is_not_spent_on_machines_that_never_report(cloud, user):
    """
    Three are tried for some minutes each, others at more leisure; after an hour it ends, with the reason.

    The week of `watch.ttl` and the budget would have gone on paying for them.
    """
    cloud.machines.start = lambda worker, **_: None
    said = user.run("up", interrupt=300)
    assert said.code == 130
    began = cloud.clock.now()
    said = user.run("watch", timeout=12 * HOUR)
    assert said.code == 1
    assert "TPU-800" in said.err
    assert "never reported" in said.err
    assert "next:" in said.err
    assert cloud.nodes() == {}
    assert len(cloud.asked("tpu.nodes.create")) in {4, 5}
    assert cloud.clock.now() - began < 4.5 * START_TIMEOUT


def test_one_bad_machine_is_replaced_and_forgotten(cloud, user):
    """The next one reports: training goes on, and what was counted counts no more."""
    start = cloud.machines.start
    cloud.machines.start = lambda worker, **words: None if worker.incarnation == 1 else start(worker, **words)
    user.run("up", interrupt=300)
    assert user.watch(1.5 * HOUR).code == 130
    assert cloud.nodes() == {"demo-tpu-g2": "READY"}
    cloud.machines.start = lambda worker, **_: None
    cloud.model.preempt("demo-tpu-g2", notice=False)
    assert user.watch(2 * START_TIMEOUT).code == 130, "one report has to start the count anew"


def test_up_opens_it_again(cloud, user):
    """The cause is mended, for which somebody was needed; `up` begins with a new TPU and a clean slate."""
    start = cloud.machines.start
    cloud.machines.start = lambda worker, **_: None
    user.run("up", interrupt=300)
    assert user.run("watch", timeout=12 * HOUR).code == 1
    cloud.machines.start = start
    user.up()
    assert list(cloud.nodes().values()) == ["READY"]
    assert user.watch(HOUR).code == 130
    assert list(cloud.nodes().values()) == ["READY"]
