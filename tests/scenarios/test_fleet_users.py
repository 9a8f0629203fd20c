"""A fleet that several people share: whose job it is, what goes first, and what a budget holds."""

import json

import pytest

from tests.kit.user import FleetOwner


@pytest.fixture
def shared_fleet(cloud):
    """Give the computer of a fleet with two users and a priority; alice has submitted a job."""
    users = {"alice": {"share": 2}, "bob": {"budget_usd": 100}}
    fleet = {"fleet__users": users, "fleet__priorities": {"urgent": {"over": "normal", "preempts": True}}}
    owner = FleetOwner(cloud, **fleet)
    owner.up("--yes")
    for name in ("first", "second"):
        job = {"name": name, "job": {"source": "src", "command": "python3 train.py"}}
        (owner.folder / f"{name}.yaml").write_text(json.dumps(job))
    owner.fleet("submit", str(owner.folder / "first.yaml"), "--user", "alice")
    return owner


def submissions(cloud):
    """Return what was asked of Slurm for each submission, behind the numbers of the tasks."""
    return [words[4:] for words in cloud.slurm if words[0] == "submit"]


def test_a_job_belongs_to_the_login_of_who_submits_it(cloud, shared_fleet):
    """Slurm counts it for that share, and the queue names it."""
    shared_fleet.fleet(
        "submit", str(shared_fleet.folder / "second.yaml"), "--user", "bob", "--priority", "urgent"
    )
    assert submissions(cloud) == [
        ("--account=alice", "--qos=normal"), ("--account=bob", "--qos=urgent"),
    ]  # fmt: skip
    assert [shared_fleet.job(name)["user"] for name in ("first", "second")] == ["alice", "bob"]
    assert [shared_fleet.job(name)["priority"] for name in ("first", "second")] == ["normal", "urgent"]
    assert "PRIORITY" in shared_fleet.run("queue").out


def test_the_share_of_another_user_is_never_used_by_accident(cloud, shared_fleet):
    """Nothing is changed, and the error says who is who."""
    before = cloud.objects(".tpuctl/orders/")
    first, second = (str(shared_fleet.folder / f"{name}.yaml") for name in ("first", "second"))
    for words, said in (
        (("submit", second), "who asks is not known"),
        (("submit", second, "--user", "carol"), "carol is not a user of this fleet"),
        (("submit", first, "--user", "bob"), "submitted before"),
        (("submit", second, "--user", "bob", "--priority", "high"), "no priority 'high'"),
        (("cancel", "first", "--user", "bob"), "first belongs to alice"),
        (("retry", "first", "--user", "bob"), "first belongs to alice"),
        (("hold", "first", "--user", "bob"), "first belongs to alice"),
    ):
        refused = shared_fleet.run(*words)
        assert (refused.code != 0, said in refused.err) == (True, True), (words, refused.err)
        assert (cloud.objects(".tpuctl/orders/"), shared_fleet.job("first")["hold_reason"]) == (before, ""), (
            words
        )
        assert shared_fleet.states("first") != ["cancelled"], words


def test_the_owner_of_a_fleet_may_act_for_another_user(cloud, shared_fleet):
    """The owner of a fleet has to."""
    shared_fleet.fleet("hold", "first", "--user", "bob", "--account-override")
    assert shared_fleet.job("first")["hold_reason"] == "held"


def test_a_budget_that_is_spent_holds_the_queue_of_its_user_until_it_is_raised(cloud, shared_fleet):
    """Tasks of others go on; a higher budget counts from the next `up`."""
    shared_fleet.edit(fleet__users={"alice": {}, "bob": {"budget_usd": 0}})
    shared_fleet.up("--yes")
    shared_fleet.fleet("submit", str(shared_fleet.folder / "second.yaml"), "--user", "bob")
    assert submissions(cloud)[-1][0] == "--hold"
    assert [shared_fleet.job(name)["hold_reason"] for name in ("first", "second")] == ["", "over-budget"]
    (_, bob) = shared_fleet.fleet("status", "--json")["users"]
    assert (bob["user"], bob["over_budget"], bob["budget_usd"]) == ("bob", True, 0)
    assert "second does not begin: bob has spent the budget" in shared_fleet.run("queue").out
    shared_fleet.edit(fleet__users={"alice": {}, "bob": {"budget_usd": 5}})
    shared_fleet.up("--yes")
    assert shared_fleet.job("second")["hold_reason"] == ""


def test_users_count_from_the_next_up_and_need_a_database(cloud):
    """Without users there is none, and everybody may submit."""
    owner = FleetOwner(cloud)
    owner.up("--yes")
    assert "database" not in [words[0] for words in cloud.slurm]
    owner.edit(fleet__users={"alice": {}})
    assert owner.run("queue").code == 0
    assert not owner.fleet("status", "--json")["users"]
    owner.up("--yes")
    assert "database" in [words[0] for words in cloud.slurm]
    assert [user["user"] for user in owner.fleet("status", "--json")["users"]] == ["alice"]
