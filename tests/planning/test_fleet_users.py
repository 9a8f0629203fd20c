"""What is sent to Slurm of users and priorities, and whose budget is spent."""

from dataclasses import replace

import pytest

from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import PrioritySpec, UserSpec
from orchestrator.planning.fleet.users import FleetUsers, accounts, below, over_budget, spending_of
from tests.planning.test_fleet import a_fleet, a_submission

PRIORITIES = {
    "urgent": PrioritySpec("normal", preempts=True),
    "normal": PrioritySpec("spare"),
    "spare": PrioritySpec(),
}
USERS = {"alice": UserSpec(share=2), "bob": UserSpec(nodes=6, budget_usd=200)}


def reported(fleet_users):
    """Return the commands for sacctmgr as lines."""
    return [" ".join(one.words) for one in accounts("demo", fleet_users)]


def test_a_priority_goes_before_all_that_the_one_below_goes_before():
    """And takes nodes from all of these, if from any."""
    assert below(PRIORITIES, "urgent") == ("normal", "spare")
    lines = reported(FleetUsers(priorities=PRIORITIES))
    assert "modify qos urgent set Priority=3 Preempt-=normal,spare" in lines
    assert "modify qos normal set Priority=2 Preempt-=urgent,spare" in lines
    assert "modify qos spare set Priority=1 Preempt-=normal,urgent" in lines
    assert [line for line in lines if "Preempt=" in line] == ["modify qos urgent set Preempt=normal,spare"]


def test_each_user_has_an_account_with_share_and_limit():
    """A limit that was taken out of the file is taken out of Slurm; there is always an account for older jobs."""
    lines = reported(FleetUsers(users=USERS))
    assert "modify account alice set Fairshare=2 GrpTRES=node=-1" in lines
    assert "modify account bob set Fairshare=1 GrpTRES=node=6" in lines
    assert "modify account shared set Fairshare=1 GrpTRES=node=-1" in lines
    assert "add user @me account=bob" in lines


def test_what_is_added_may_be_there_and_what_is_set_must_go_well():
    """So the same commands bring every state to the one that is wanted."""
    assert {one.may_fail for one in accounts("demo", FleetUsers(USERS)) if one.words[0] == "add"} == {True}
    assert {one.may_fail for one in accounts("demo", FleetUsers(USERS)) if one.words[0] == "modify"} == {
        False
    }


@pytest.mark.parametrize(
    ("fleet_users", "submission", "options"),
    [
        (FleetUsers(), a_submission(user="alice", priority="urgent"), ("", "")),
        (FleetUsers(USERS, PRIORITIES), a_submission(user="alice", priority="urgent"), ("alice", "urgent")),
        (FleetUsers(USERS), a_submission(user="carol", priority="urgent"), ("shared", "normal")),
        (FleetUsers(priorities=PRIORITIES), a_submission(), ("shared", "normal")),
    ],
)
def test_a_job_runs_under_its_users_account(fleet_users, submission, options):
    """Of a user or priority that has left the file it runs as one of nobody: Slurm would refuse the name."""
    assert fleet_users.options(submission) == options


def test_a_budget_is_spent_by_all_jobs_of_its_user_together():
    """It counts as spent when it is reached; a budget of 0 always is."""
    submissions = [
        a_submission("a", user="alice"),
        a_submission("b", user="bob"),
        a_submission("c", user="bob"),
        a_submission("d"),
    ]
    usd = spending_of(submissions, {"a": 500.0, "b": 120.0, "c": 80.0})
    assert usd == {"alice": 500.0, "bob": 200.0, "": 0.0}
    assert over_budget(FleetUsers({**USERS, "carol": UserSpec(budget_usd=0)}), usd) == {"bob", "carol"}
    assert over_budget(FleetUsers(USERS), {"bob": 199.0}) == frozenset()


@pytest.mark.parametrize(
    ("users", "priorities", "key"),
    [
        ({"Alice": UserSpec()}, {}, "fleet.users.Alice"),
        ({"root": UserSpec()}, {}, "fleet.users.root"),
        ({"a": UserSpec(share=0)}, {}, "fleet.users.a.share"),
        ({"a": UserSpec(nodes=0)}, {}, "fleet.users.a.nodes"),
        ({"a": UserSpec(budget_usd=-1)}, {}, "fleet.users.a.budget_usd"),
        ({}, {"a": PrioritySpec("b")}, "fleet.priorities.a.over"),
        ({}, {"a": PrioritySpec("b"), "b": PrioritySpec("a")}, "fleet.priorities.a.over"),
        ({}, {"a": PrioritySpec(preempts=True)}, "fleet.priorities.a.preempts"),
        ({}, {"A": PrioritySpec()}, "fleet.priorities.A"),
        ({}, {f"p{n}": PrioritySpec() for n in range(9)}, "fleet.priorities"),
    ],
)
def test_what_a_team_cannot_be_is_refused(users, priorities, key):
    """Before anything is made, with the place in the file."""
    spec = a_fleet()
    spec = replace(spec, fleet=replace(spec.fleet, users=users, priorities=priorities))
    assert key in {p.setting for p in run_rules(spec, load_catalog()) if p.level is Level.STOP}
