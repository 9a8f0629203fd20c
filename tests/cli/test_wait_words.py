"""What `status` and `explain` print of a wait, and of a TPU that is gone."""

from dataclasses import replace

import pytest

from orchestrator.app.this_computer.quick_status import aged
from orchestrator.cli.console import wrapped
from orchestrator.cli.views.status import fitted
from orchestrator.domain.status import FROM_CLOUD
from tests.cli.test_status_view import body
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer with a deployment in one zone."""
    with VirtualCloud(tmp_path).open() as cloud:
        yield User(cloud)


def test_a_wait_is_no_change_and_a_last_report_is_no_work(user):
    """Without a watcher, first with a TPU that is PREEMPTED, then with none to be had."""
    user.up()
    user.cloud.model.preempt("demo-tpu-g1", notice=False)
    lost = user.run("status", "--json").document
    assert (lost["waits_for"], lost["next_changes"][0].partition(":")[0]) == ([], "delete TPU demo-tpu-g1")
    assert (lost["next_pass_in_s"], lost["watch_poll_s"]) == (None, 60.0)
    status, explained = user.run("status").out, user.run("explain").out
    assert "\nworker 0     last report: runs, step 0, " in status
    assert "\njob: stopped with its TPU\n" in explained

    user.cloud.change(stockouts=frozenset({"europe-west4-b/spot"}))
    user.watch(60)
    found = user.run("status", "--json").document
    assert (found["next_changes"], found["waits_for"][0]["what"]) == ([], "TPU: next try")
    status = user.run("status").out
    assert "\nwaiting      TPU: next try, there was no capacity in europe-west4-b (when a" in status
    assert [line for line in status.splitlines() if line.startswith("next ")] == [
        "next         run: tpuctl watch"
    ]


def test_the_head_of_the_status_says_which_numbers_never_ran():
    """Without it "TPU #3, 1 preemption" reads as a lost TPU that nobody saw."""
    shown = body(incarnation=3, preemptions=1, unused_incarnations=[2])
    (head, *_) = fitted(shown, unbilled=True, wide=False, colour=False)
    assert head == "numpy-lm  TPU #3 (#2 never ran), 1 preemption"
    many = body(incarnation=9, preemptions=1, unused_incarnations=[2, 3, 4, 5, 6])
    assert "(#2, #3, #4, #5 ... never ran)" in fitted(many, unbilled=True, wide=False, colour=False)[0]


def test_a_stockout_names_the_command_that_lists_more_zones(user):
    """Whoever wants to name more zones has to know which ones have the type."""
    user.cloud.change(stockouts=frozenset({"europe-west4-b/spot"}))
    said = user.run("up")
    assert said.code != 0
    assert "name more zones in tpu.zones; see: tpuctl zones v5litepod-8" in said.err


def test_a_watcher_makes_its_changes_now_and_who_asks_the_cloud_sees_them_before():
    """`in 14 s` was said of a TPU that the watcher was requesting in that second."""
    change = body(next_changes=["create TPU g4: it is PREEMPTED"], next_pass_in_s=15.0)
    line = "next         create TPU g4: it is PREEMPTED"
    assert f"{line} (now)" in fitted(change, unbilled=True, wide=False, colour=False)
    asked = replace(change, source=FROM_CLOUD)
    assert f"{line} (within 15 s)" in fitted(asked, unbilled=True, wide=False, colour=False)


QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"


def next_lines(text):
    """Return the lines of a status about what is next, each with its continuation."""
    _, *found = text.replace("\n             ", " ").split("\nnext         ")
    return [one.partition("\n")[0] for one in found]


def test_a_refusal_for_quota_names_what_helps_and_not_the_watcher_that_asks_in_vain(user):
    """Before and after it is final; `watch` gives the advice once, not with each refusal."""
    user.cloud.change(quotas={(QUOTA, "europe-west4-b"): 4})
    assert user.run("up").code == 4
    watched = user.watch(120).err
    assert watched.count("(TPU-350)") > 1
    assert watched.count("\n          next: you requested 8 chips, the limit is 4: ") == 1
    first, second = next_lines(user.run("status").out)
    assert first.startswith(
        "you requested 8 chips, the limit is 4: v5litepod-4 would fit (tpu.type); waiting helps "
    )
    assert second == "then `tpuctl up` asks again; `tpuctl down` deletes what is billed meanwhile"

    gave_up = user.run("watch")
    assert (gave_up.code, "TPU-350" in gave_up.err) == (4, True)
    status, explained = user.run("status").out, user.run("explain").out
    assert next_lines(status) == [first, second]
    assert "not requested again" in status
    assert "Run: tpuctl watch" not in status
    assert "next  nothing before `tpuctl up`" in explained
    assert "do    tpuctl watch" not in explained


def test_a_wait_after_a_stockout_names_it(user):
    """The state alone says that it starts."""
    user.cloud.change(stockouts=frozenset({"europe-west4-b/spot"}))
    assert "waiting: TPU: next try in " in user.run("up", "--wait", interrupt=60).err
    (wait, *_) = user.run("status", "--json").document["waits_for"]
    assert wait["message"] == "there was no capacity in europe-west4-b"


def test_a_command_at_the_end_of_a_line_is_not_split_between_two():
    """Who copies the first half starts the watch in another place."""
    alone = body(watcher=None, next_pass_in_s=None, watch_on_vm=True)
    lines = fitted(alone, unbilled=True, wide=False, colour=False)
    assert [line.strip() for line in lines if "tpuctl watch" in line] == [
        "tpuctl watch --on-vm", "next         run: tpuctl watch --on-vm",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    assert wrapped(["Run: tpuctl watch --on-vm"], 12, "") == ["Run: tpuctl", "watch", "--on-vm"]


def test_a_pass_whose_time_has_gone_by_is_not_said_to_come_now():
    """The watcher publishes at news: "now" was said for 10 s, until its next pass, or while it had none."""
    late = aged(body(next_pass_in_s=2.0, watch_poll_s=15.0), 8.0, "the loop on the VM")
    line = "next         nothing to do while the job runs; the watcher checks again"
    for status, when in (
        (late, "within 15 s"),
        (aged(body(next_pass_in_s=9.0, watch_poll_s=15.0), 5.0, "the watcher"), "in 4 s"),
        (aged(body(next_pass_in_s=9.0, watch_poll_s=15.0), 8.5, "the watcher"), "now"),
        (aged(body(next_pass_in_s=2.0), 8.0, "an earlier watcher"), "now"),
    ):
        assert f"{line} {when}" in fitted(status, unbilled=True, wide=True, colour=False)
    making = replace(late, next_changes=("create TPU g4: it is PREEMPTED",))
    assert "next         create TPU g4: it is PREEMPTED (now)" in fitted(
        making, unbilled=True, wide=True, colour=False
    )
