"""How often a job saves, as its market shows it: `job.checkpoint.every: auto`."""

import pytest

from orchestrator.contract.interval import save_interval, time_between_interruptions, zone_preemptions
from tests.engine.engine_lab import ZONE
from tests.kit.user import User

KIND = "v5litepod-8"


@pytest.fixture
def user(cloud):
    """Give the computer of one whose job saves when tpuctl says so."""
    return User(cloud, job__checkpoint={"every": "auto"})


def taken_away(cloud, user, minutes, times):
    """Watch while the newest TPU is taken without a notice, again and again."""

    def take():
        ready = [name for name, state in cloud.nodes().items() if state == "READY"]
        for name in ready:
            cloud.model.preempt(name, notice=False)

    for number in range(times):
        cloud.later(60 * minutes * (number + 1), take)
    user.watch(60 * minutes * (times + 1))


def saves(user):
    """Return what `plan` says of the saves."""
    return user.run("plan", "--json").document["saves"]


def test_a_zone_that_takes_tpus_after_minutes_makes_the_next_ones_save_more_often(cloud, user):
    """The next machine reads the same in the bucket, before it has lost anything itself."""
    user.up()
    before = saves(user)
    taken_away(cloud, user, 15, 4)
    after = saves(user)
    assert before["time_between_interruptions_s"] == 7200.0
    assert after["time_between_interruptions_s"] < 3600.0
    assert after["save_interval_s"] < before["save_interval_s"] / 1.4
    with cloud.storage.lock:
        known = cloud.storage.objects.read(
            cloud.storage.objects.get(cloud.buckets()[0], ".tpuctl/capacity.json")
        )
    assert (
        save_interval(5.0, time_between_interruptions((), zone_preemptions(known, ZONE, KIND)))
        == after["save_interval_s"]
    )


def test_a_quiet_market_leaves_the_interval_as_it_is(cloud, user):
    """No TPU has gone, so nothing is known that was not assumed."""
    user.up()
    before = saves(user)
    user.watch(7200)
    assert saves(user) == before


def test_status_and_explain_say_how_often_the_job_saves_and_why(cloud, user):
    """A save that takes longer is made less often; the machine measures that and says so."""
    user.up()
    user.watch(600)
    texts = []
    for pause, every in ((0.5, 85), (40.0, 760)):
        cloud.machines.say(
            "demo",
            save_interval=every,
            save_pause=pause,
            save_pause_from="measured",
            time_between_interruptions=7200,
        )
        texts.append(user.run("status", "--fresh").out)
    assert "every 1 min 25 s: a save stops the training for 0.5 s (measured)" in texts[0]
    assert "every 12 min 40 s: a save stops the training for 40 s (measured)" in texts[1]
    said = " ".join(user.run("explain").out.split())
    assert "saves: every 12 min 40 s why a save stops the training for 40 s (measured), unsaved work" in said
