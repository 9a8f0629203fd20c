"""Machines that come up and never report, such as those whose service account may not use the bucket."""

from orchestrator.planning.never_reported import START_DEADLINE

HOUR = 3600.0


def test_a_grant_is_not_spent_on_machines_that_never_report(town, desk):
    """
    Three are tried for some minutes each, others at more leisure; after an hour it ends, with the reason.

    The week of `watch.ttl` and the budget would have gone on paying for them.
    """
    town.crew.start = lambda worker, **_: None
    said = desk.run("up", interrupt=300)
    assert said.code == 130
    began = town.clock.now()
    said = desk.run("watch", patience=12 * HOUR)
    assert said.code == 1
    assert "TPU-800" in said.err
    assert "never reported" in said.err
    assert "next:" in said.err
    assert town.nodes() == {}
    assert len(town.asked("tpu.nodes.create")) in {4, 5}
    assert town.clock.now() - began < 4.5 * START_DEADLINE


def test_one_bad_machine_is_replaced_and_forgotten(town, desk):
    """The next one reports: training goes on, and what was counted counts no more."""
    start = town.crew.start
    town.crew.start = lambda worker, **words: None if worker.incarnation == 1 else start(worker, **words)
    desk.run("up", interrupt=300)
    assert desk.watch(1.5 * HOUR).code == 130
    assert town.nodes() == {"demo-tpu-g2": "READY"}
    town.crew.start = lambda worker, **_: None
    town.cloud.preempt("demo-tpu-g2", notice=False)
    assert desk.watch(2 * START_DEADLINE).code == 130, "one report has to start the count anew"


def test_up_opens_it_again(town, desk):
    """The cause is mended, for which somebody was needed; `up` begins with a new TPU and a clean slate."""
    start = town.crew.start
    town.crew.start = lambda worker, **_: None
    desk.run("up", interrupt=300)
    assert desk.run("watch", patience=12 * HOUR).code == 1
    town.crew.start = start
    desk.up()
    assert list(town.nodes().values()) == ["READY"]
    assert desk.watch(HOUR).code == 130
    assert list(town.nodes().values()) == ["READY"]
