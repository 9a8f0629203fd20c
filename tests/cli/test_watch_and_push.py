"""A `watch` that lets a `push` go first: what it says, and that it goes on by itself."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from orchestrator.contract.bucket.object_names import LEASE, LEASE_WISH
from orchestrator.domain.lease import Holder
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.publish.paused import PAUSED_HERE
from tests.kit.user import User

TIME = r"\d\d:\d\d:\d\d"


@pytest.fixture
def user(cloud):
    """Give a computer whose deployment is up."""
    one = User(cloud, job__target_steps=400)
    one.up()
    return one


def killed_push(cloud, user):
    """Push new code, and kill that command while it has the lease."""
    user.write("train.py", "print('never sent')\n")
    assert user.run("push", kill=(5, "after")).code is None
    assert LEASE in cloud.objects(LEASE)


def test_a_watch_lets_a_push_go_first_and_goes_on(cloud, user):
    """One on another computer asks for the lease; when it is done the watch takes it again."""
    asker = Holder("x", "me@elsewhere", "push", 0.0)
    bucket = cloud.buckets()[0]
    cloud.later(
        300, lambda: cloud.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    said = user.watch(900)
    assert said.code == 130
    before, _, after = said.err.partition("  paused for `tpuctl push`; resuming afterwards\n")
    assert re.fullmatch(TIME, before.splitlines()[-1])
    assert "job runs" in after
    assert re.search(
        rf"^{TIME}  resuming after `tpuctl push`: nothing of the job has changed$", after, re.MULTILINE
    )


def test_a_watch_that_goes_on_after_a_push_says_that_the_job_has_new_code(cloud, user):
    """Its lines before and after are of two programs."""
    asker, pushed = Holder("x", "me@elsewhere", "push", 0.0), []

    def push():
        if LEASE in cloud.objects(LEASE):
            cloud.later(1, push)
        else:
            user.write("train.py", "print('new')\n")
            pushed.append(user.run("push"))

    wish = (cloud.buckets()[0], LEASE_WISH, asker.to_json(), {}, Preconditions())
    cloud.later(300, lambda: cloud.storage.objects.insert(*wish))
    cloud.later(301, push)
    said = user.watch(900).err
    assert pushed[0].code == 0, pushed[0].err
    after = said.partition("resuming afterwards")[2]
    assert re.search(rf"^{TIME}  resuming after `tpuctl push`: the job has new code$", after, re.MULTILINE)


def test_status_does_not_ask_for_another_watch_while_one_lets_a_push_go_first(cloud, user):
    """It lives, although nobody has the lease just after the push; its note counts for a minute."""
    asker, notes = Holder("x", "me@elsewhere", "push", 0.0), []
    bucket = cloud.buckets()[0]
    cloud.later(
        300, lambda: cloud.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    cloud.later(
        361, lambda: notes.extend((path, path.read_bytes()) for path in user.state.rglob(PAUSED_HERE))
    )
    assert user.watch(900).code == 130
    assert list(user.state.rglob(PAUSED_HERE)) == [], "it has gone on"
    assert "Run: tpuctl watch" in user.run("status", "--fresh").out
    ((path, note),) = notes
    path.write_bytes(replace(Holder.from_json(note), since=cloud.clock.now(), id="lives").to_json())
    lived = user.run("status", "--fresh").out
    assert "watcher      `tpuctl watch` of" in lived
    assert "Run: tpuctl watch" not in lived
    killed_push(cloud, user)
    assert "Run: tpuctl watch" not in user.run("status", "--fresh").out, "only the push was killed"
    cloud.wait(61)
    assert "Run: tpuctl watch" in user.run("status", "--fresh").out


def test_a_watch_goes_on_at_once_when_the_push_was_killed(cloud, user):
    """Its lease stays for a minute, in which no TPU would be replaced; its process shows that it has ended."""
    asker, bucket = Holder("x", "me@elsewhere", "push", 0.0), cloud.buckets()[0]

    def push():
        if LEASE in cloud.objects(LEASE):
            cloud.later(1, push)
        else:
            killed_push(cloud, user)
            cloud.storage.objects.delete(bucket, LEASE_WISH, None, Preconditions())

    cloud.later(
        300, lambda: cloud.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    cloud.later(301, push)
    said = user.watch(900).err
    paused, resumed = (
        datetime.strptime(line[:8], "%H:%M:%S")  # noqa: DTZ007 (the difference of two)
        for line in said.splitlines()
        if "paused for" in line or "resuming after" in line
    )
    assert resumed - paused < timedelta(seconds=20)


def test_a_watch_that_let_a_push_go_first_waits_for_a_network_that_goes_away(cloud, user):
    """It is on its own: nobody is there to start it again when ten minutes later the bucket answers."""
    asker = Holder("x", "me@elsewhere", "push", 0.0)
    bucket = cloud.buckets()[0]

    def cut():
        if LEASE in cloud.objects(LEASE):
            cloud.later(1, cut)
        else:
            user.offline = True
            cloud.later(600, lambda: setattr(user, "offline", False))

    cloud.later(
        300, lambda: cloud.storage.objects.insert(bucket, LEASE_WISH, asker.to_json(), {}, Preconditions())
    )
    cloud.later(301, cut)
    said = user.watch(1800)
    assert said.code == 130, said.err
    assert user.offline is False
    assert "job runs" in said.err.partition("resuming afterwards")[2]
