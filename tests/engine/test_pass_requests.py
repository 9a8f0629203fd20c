"""What a pass costs: reports that have not changed are not read again; a pass that breaks off is soon repeated."""

from itertools import pairwise

import pytest

from orchestrator.domain.observation import Unknown
from orchestrator.engine.loop.loop import Loop
from orchestrator.errors import TransientError
from tests.engine.engine_lab import one_zone_spec

GET = "storage.objects.get"


def reads(lab, look):
    """Return how many objects a look has read."""
    before = lab.cloud.calls[GET]
    look()
    return lab.cloud.calls[GET] - before


def test_a_report_is_read_once(lab):
    """Equal generations in the list mean equal reports; a new one is read, in one request."""
    controller = lab.up(one_zone_spec(tpu__type="v5litepod-16"))
    lab.wait(60)
    first = controller.one_pass().world.heartbeats.value
    assert len(first) == 4
    assert reads(lab, controller.one_pass) == 0
    assert controller.one_pass().world.heartbeats.value == first
    lab.wait(60)
    assert reads(lab, controller.one_pass) == 4
    second = controller.one_pass().world.heartbeats.value
    assert all(new.updated == old.updated + 60 for old, new in zip(first, second, strict=True))


def test_a_report_that_went_is_forgotten(lab):
    """Only what the list shows counts, whatever was read before."""
    controller = lab.up()
    lab.wait(60)
    assert controller.one_pass().world.heartbeats.value
    controller.cloud.store.delete(".tpuctl/heartbeat/1/0")
    assert controller.one_pass().world.heartbeats.value == ()


def test_an_unreadable_report_stays_unknown_until_there_is_another(lab):
    """It is read at each look, since nothing was learned from it."""
    controller = lab.up()
    lab.put(".tpuctl/heartbeat/1/0", b"{")
    for _ in range(2):
        assert isinstance(controller.one_pass().world.heartbeats, Unknown)
    lab.wait(15)
    assert controller.one_pass().world.heartbeats.value


def test_a_command_that_leaves_while_nothing_answers_does_not_say_that_it_goes_on(lab):
    """Ctrl-C in an outage: the next step is the user's."""
    controller = lab.up()

    def refuse():
        controller.loop.stop.set()
        raise TransientError("the bucket does not answer", hint="nothing to do: tpuctl goes on")

    controller.loop.reconciler.one_pass = refuse
    with pytest.raises(TransientError) as remaining:
        controller.loop.run(lambda result: True)
    assert remaining.value.hint == "run the same command again when it answers"


@pytest.mark.parametrize(
    ("poll", "longest"),
    [
        (300, [15, 30, 60, 120, 240, 300, 300]),
        (15, [15, 30, 60, 60, 60, 60, 60]),
        (1, [1, 2, 4, 8, 16, 32, 60]),
    ],
)
def test_a_pass_that_broke_off_is_soon_tried_again(lab, poll, longest):
    """
    A bucket that is away for a moment costs moments, one that is away for long is asked once a minute.

    The tries are counted, so that a view can show them in one line.
    """
    controller = lab.up(one_zone_spec(watch__poll=f"{poll}s"))
    tries = []

    def refuse():
        tries.append(lab.clock.now())
        if len(tries) <= len(longest):
            raise TransientError("the bucket does not answer")
        return one_pass()

    reconciler = controller.loop.reconciler
    one_pass, reconciler.one_pass = reconciler.one_pass, refuse
    controller.loop.run(lambda result: True)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    assert len({pause / most for pause, most in zip(pauses, longest, strict=True)}) > 1
    reported = [event.data for event in controller.events if event.kind == "failure"]
    assert [data["tries"] for data in reported] == [1, 2, 3, 4, 5, 6, 7]
    assert {data["since"] for data in reported} == {tries[0]}
    assert "works again after" in controller.events[-1].message
    (said,) = [event.message for event in controller.events if "trying again" in event.message]
    assert f"at least every {max(poll, 60)} s, until it answers" in said
    assert "the job trains on" in said
    assert "TPU: nothing deletes it by itself (to change that: watch.self_delete: true)" in said


def test_a_command_that_waits_for_a_goal_gives_up_on_a_cloud_that_is_gone(lab):
    """`up` and `push` end after their timeout and say so before; whoever protects a TPU would go on."""
    controller = lab.up(one_zone_spec())
    loop, tries = Loop(controller.deployment, outage_timeout=900.0), []

    def refuse():
        tries.append(lab.clock.now())
        raise TransientError("the network is down")

    loop.reconciler.one_pass = refuse
    with pytest.raises(TransientError) as remaining:
        loop.run(lambda result: False)
    assert remaining.value.hint == "run the same command again when it answers"
    assert 900 <= lab.clock.now() - tries[0] <= 960
    assert [e.message for e in controller.events if "for 15 min" in e.message]
