"""The lease: one computer acts, the others say who holds it, and a paused holder does no harm."""

import json
import re
from dataclasses import replace

import pytest

from orchestrator.app.this_computer.process_lock import only_here
from orchestrator.contract.bucket.object_names import LEASE
from orchestrator.domain.lease import EXPIRES_AFTER, LOOP, PUSH, RENEWAL, SAFE, YIELD_TIMEOUT, Holder, held_by
from orchestrator.errors import LeaseHeldError, TransientError


def test_a_second_computer_names_who_holds_the_lease(lab):
    """Exit 6 with who, since when and what to do; not one call is made."""
    lab.up()
    before = lab.mutations()
    with pytest.raises(LeaseHeldError, match=r"here holds the lease since 20\d\d-.*tpuctl watch") as refused:
        lab.controller(state="another computer", beside=True, who="there")
    assert refused.value.exit_code == 6
    assert re.search(r"in [56]\d s$", refused.value.hint)
    assert lab.mutations() == before


def test_a_lease_that_is_not_renewed_is_taken_over_and_its_holder_fenced(lab):
    """A holder that slept through its lease (SIGSTOP, closed laptop) acts no more when it wakes."""
    first = lab.up()
    lab.clock.advance(EXPIRES_AFTER + 1)
    second = lab.controller(state="another computer", beside=True, who="there")
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    before = lab.mutations()
    with pytest.raises(LeaseHeldError, match="there holds the lease"):
        first.one_pass()
    assert lab.mutations() == before
    second.up()
    assert list(lab.nodes()) == ["demo-tpu-g2"]


def test_a_holder_that_renews_keeps_its_lease(lab):
    """Passes renew it; a day later nobody else gets it."""
    first = lab.up()
    for _ in range(30):
        lab.clock.advance(RENEWAL + 1)
        first.one_pass()
    with pytest.raises(LeaseHeldError):
        lab.controller(state="another computer", beside=True)


def test_a_holder_that_cannot_renew_stops_acting_before_anybody_may_take_over(lab):
    """The preempted node is replaced only after the bucket has answered again."""
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.clock.advance(SAFE)
    lab.cloud.fail_next("storage.objects.insert", ["rate of one object"] * 3)
    before = lab.mutations()
    with pytest.raises(TransientError, match="could not be renewed"):
        controller.one_pass()
    assert lab.mutations() == before
    controller.up()
    assert list(lab.nodes()) == ["demo-tpu-g2"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_neither_loses_nor_keeps_a_lease(lab, hours):
    """Ages are measured by the bucket's clock and by seconds that pass, never by the time of day."""
    controller = lab.up()
    lab.clock.set_by(hours * 3600)
    controller.one_pass()
    lab.clock.advance(SAFE)
    lab.cloud.fail_next("storage.objects.insert", ["rate of one object"])
    with pytest.raises(TransientError, match="could not be renewed"):
        controller.lease.keep()


def test_a_dead_process_of_this_computer_is_not_waited_for(lab):
    """A watch that was killed starts again at once."""
    lab.up()
    lab.controller().one_pass()


def test_the_lease_is_released(lab):
    """A command that ends leaves no lease; a late release does not take another holder's."""
    first = lab.up()
    first.lease.release()
    second = lab.controller(state="another computer", beside=True)
    first.lease.release()
    with pytest.raises(LeaseHeldError):
        lab.controller(beside=True)
    second.lease.release()
    lab.controller(beside=True)


def test_a_holder_steps_aside_for_the_command_it_yields_to(lab):
    """`down` is let through by a running `watch`; what it asked for is no reason to stop for ever."""
    watch = lab.controller(yields=("watch",))
    watch.up()
    wait, stepped = lab.clock.wait, []

    def meanwhile(seconds, wake=None):
        wait(seconds, wake)
        try:
            watch.lease.step_aside()
        except LeaseHeldError as aside:
            stepped.append(str(aside))
            watch.lease.release()

    lab.clock.wait = meanwhile
    asker = lab.controller(state="another computer", beside=True, who="there")
    assert len(stepped) == 1
    assert "`tpuctl watch` of there works on this deployment now" in stepped[0]
    assert not lab.objects(".tpuctl/lease-wish")
    asker.one_pass()


def test_a_wish_of_long_ago_moves_no_watcher(lab):
    """A command that asked and died must not leave a deployment without its watcher."""
    lab.put(".tpuctl/lease-wish", b"{}")
    watch = lab.controller(yields=("down",))
    watch.up()
    asking = {"id": "x", "who": "there", "command": "down", "since": 0.0}
    lab.put(".tpuctl/lease-wish", json.dumps(asking).encode())
    with pytest.raises(LeaseHeldError) as caught:
        watch.lease.step_aside()
    assert (caught.value.hint, caught.value.changed) == (
        "see what it leaves: tpuctl status", "",
    )  # fmt: skip
    for _ in range(5):
        lab.clock.advance(RENEWAL)
        watch.lease.keep()
    watch.lease.step_aside()


def test_a_wish_of_a_killed_command_of_this_computer_moves_no_watcher(lab):
    """A push that was killed while it waited: the watch would let it go first for a minute."""
    watch = lab.controller(yields=("push",))
    watch.up()
    lab.put(".tpuctl/lease-wish", Holder("x", "me@here", "push", 0.0).to_json())
    with pytest.raises(LeaseHeldError):
        watch.lease.step_aside()
    lab.ended.add("x")
    watch.lease.step_aside()


def test_a_holder_that_does_not_step_aside_is_not_waited_for_without_end(lab):
    """After a minute and a half the asker says who holds the lease."""
    watch = lab.controller(yields=("watch",))
    watch.up()
    wait, start = lab.clock.wait, lab.clock.now()

    def meanwhile(seconds, wake=None):
        wait(seconds, wake)
        watch.lease.keep()

    lab.clock.wait = meanwhile
    with pytest.raises(LeaseHeldError):
        lab.controller(state="another computer", beside=True, who="there")
    assert YIELD_TIMEOUT <= lab.clock.now() - start < YIELD_TIMEOUT + 5
    assert not lab.objects(".tpuctl/lease-wish")


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_answer_is_no_other_holder(lab, lost):
    """A renewal that took effect without an answer is found to be our own."""
    controller = lab.up()
    lab.clock.advance(RENEWAL + 1)
    lab.cloud.fail_next("storage.objects.insert", ["drop-answer"] * lost)
    for _ in range(lost + 1):
        controller.lease.keep()
    assert lab.cloud.unused_faults() == []
    assert json.loads(lab.get(LEASE))["id"] == controller.lease.me.id
    lab.clock.advance(RENEWAL + 1)
    controller.one_pass()


def test_two_first_ups_make_one_of_everything(lab):
    """Before the bucket exists no lease can be held: names decide, and the record lets one of them through."""
    first = lab.controller(state="one", beside=True, who="one")
    second = lab.controller(state="two", beside=True, who="two")
    first.want()
    second.want()
    first.one_pass()
    refused = 0
    for one in (second, first):
        try:
            one.up()
        except LeaseHeldError:
            refused += 1
    assert refused == 1
    assert list(lab.nodes()) == ["demo-tpu-g1"]
    assert list(lab.vms()) == ["demo-vm"]


@pytest.mark.parametrize("ahead", [-7200.0, 7200.0])
def test_a_computer_whose_clock_is_wrong_by_hours_does_what_others_do(lab, ahead):
    """Ages of reports, states and refusals are measured by the bucket's clock as soon as there is a bucket."""
    controller = lab.up(ahead=ahead)
    assert controller.clock.now() == pytest.approx(lab.clock.now(), abs=5)
    lab.wait(60)
    assert controller.one_pass().plan.changes == ()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    start = lab.clock.now()
    controller.up()
    assert list(lab.nodes()) == ["demo-tpu-g2"]
    assert lab.clock.now() - start < 120
    other = lab.controller(state="another computer", ahead=-ahead)
    lab.wait(60)
    assert other.one_pass().plan.changes == ()


def test_a_clock_that_was_never_compared_decides_nothing(lab):
    """The bucket did not report its time when the lease was taken: the healthy node is not touched meanwhile."""
    lab.up()
    lab.wait(60)
    lab.cloud.fail_next("storage.objects.list", ["rate of one object"])
    lab.ended.update(lab.processes)
    controller = lab.controller(ahead=400.0)
    assert controller.clock.now() > lab.clock.now() + 300
    lab.cloud.fail_next("storage.objects.list", ["rate of one object"])
    with pytest.raises(TransientError, match="told the time"):
        controller.one_pass()
    controller.one_pass()
    assert controller.clock.now() == pytest.approx(lab.clock.now(), abs=5)
    assert list(lab.nodes()) == ["demo-tpu-g1"]


@pytest.mark.parametrize(("yields", "named"), [((PUSH, "down"), True), (("down",), False)], ids=str)
def test_who_holds_the_lease_and_yields_to_a_push_says_so(yields, named, tmp_path):
    """On this computer and elsewhere: a user beside a watch has new code more often than a new file."""
    holder = Holder("x", "me@here", "watch", 0.0, yields=yields)
    assert ("tpuctl push" in held_by(holder, 5.0).next_step) == named
    other = only_here(tmp_path, replace(holder, command="up"), lambda: None)
    with only_here(tmp_path, holder, lambda: None), pytest.raises(LeaseHeldError) as refused, other:
        pass
    assert ("tpuctl push" in refused.value.next_step) == named


def test_who_is_refused_by_the_loop_on_the_vm_learns_how_it_is_stopped():
    """It is no command that one types, and no terminal has a Ctrl-C for it."""
    loop = Holder("x", "tpuctl@vm", LOOP, 0.0)
    refused = held_by(loop, 5.0)
    assert refused.message.startswith("the loop on the VM holds the lease")
    assert "tpuctl watch --on-vm --stop" in refused.next_step
    assert (loop.called, replace(loop, command="up").called) == (
        "the loop on the VM",
        "`tpuctl up` of tpuctl@vm",
    )
