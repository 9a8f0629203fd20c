"""What `status` and `explain` print of a wait, and of a TPU that is gone."""

import pytest

from tests.kit.cloud import Cloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer with a deployment in one zone."""
    with Cloud(tmp_path).open() as cloud:
        yield User(cloud)


def test_a_wait_is_no_change_and_a_last_report_is_no_work(user):
    """Without a watcher, first with a TPU that is PREEMPTED, then with none to be had."""
    user.up()
    user.cloud.model.preempt("demo-tpu-g1", notice=False)
    lost = user.run("status", "--json").document
    assert (lost["waits"], lost["next"][0].partition(":")[0]) == (False, "delete TPU demo-tpu-g1")
    status, explained = user.run("status").out, user.run("explain").out
    assert "\nworker 0     last report: run, step 0, " in status
    assert "\njob: last report: run\n" in explained
    assert "it is kept up" not in explained

    user.cloud.change(stockouts=frozenset({"europe-west4-b/spot"}))
    user.watch(60)
    assert user.run("status", "--json").document["waits"]
    status = user.run("status").out
    assert "\nwaiting      TPU: next try in " in status
    assert "\nnext " not in status
