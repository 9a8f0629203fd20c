"""
Map users and priorities of a fleet to Slurm accounts and QOS, and find users over budget.

Pure. Shares, limits and the order of the queue are Slurm's; budgets are tpuctl's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.spec import FleetSpec, PrioritySpec, UserSpec
from orchestrator.planning.fleet.tasks import Submission

NORMAL = "normal"
"""Priority of a job that names none; Slurm creates a QOS of this name by itself."""
SHARED = "shared"
"""Account of jobs that were submitted without a login."""
NO_LOGINS = frozenset({SHARED, "root"})


@dataclass(frozen=True)
class FleetUsers:
    """Who may use a fleet, and which priorities there are."""

    users: Mapping[str, UserSpec] = field(default_factory=dict)
    priorities: Mapping[str, PrioritySpec] = field(default_factory=dict)

    @property
    def needs_database(self) -> bool:
        """Return whether Slurm needs its database, without which it has neither shares nor priorities."""
        return bool(self.users or self.priorities)

    def options(self, submission: Submission) -> tuple[str, str]:
        """Return the account and the QOS of a job in Slurm, both empty without a database."""
        if not self.needs_database:
            return "", ""
        user = submission.user if submission.user in self.users else SHARED
        return user, submission.priority if submission.priority in self.priorities else NORMAL


def users_of(fleet: FleetSpec | None) -> FleetUsers:
    """Return the users from the deployment file's `fleet` section."""
    return FleetUsers(fleet.users, fleet.priorities) if fleet else FleetUsers()


def below(priorities: Mapping[str, PrioritySpec], name: str) -> tuple[str, ...]:
    """Return the priorities that *name* ranks above, nearest first; *name* itself is one if they form a circle."""
    found: list[str] = []
    over = priorities[name].over if name in priorities else None
    while over is not None and over not in found:
        found.append(over)
        over = priorities[over].over if over in priorities else None
    return tuple(found)


@dataclass(frozen=True)
class SacctmgrCommand:
    """The arguments of one sacctmgr command; *may_fail* is set if it fails when its object already exists."""

    words: tuple[str, ...]
    may_fail: bool = False


def accounts(cluster: str, fleet_users: FleetUsers) -> tuple[SacctmgrCommand, ...]:
    """
    Return the sacctmgr commands for *fleet_users*; repeating them has no effect.

    `@me` stands for Slurm's Unix user. Nothing is removed, because tasks of a user who has left the file may still
    run.
    """
    names = tuple(dict.fromkeys((NORMAL, *fleet_users.priorities)))
    found = [SacctmgrCommand(("add", "cluster", cluster), may_fail=True)]
    found += [SacctmgrCommand(("add", "qos", name), may_fail=True) for name in names]
    for name in names:
        # All preemption is cleared first: sacctmgr refuses a list that forms a circle with the stored ones, and it
        # takes an empty list for a circle.
        others = ",".join(one for one in names if one != name)
        set_ = (
            f"Priority={len(below(fleet_users.priorities, name)) + 1}",
            *([f"Preempt-={others}"] if others else []),
        )
        found.append(SacctmgrCommand(("modify", "qos", name, "set", *set_)))
    for name in names:
        lower = below(fleet_users.priorities, name)
        if name in fleet_users.priorities and fleet_users.priorities[name].preempts:
            found.append(SacctmgrCommand(("modify", "qos", name, "set", f"Preempt={','.join(lower)}")))
    found.append(SacctmgrCommand(("modify", "cluster", cluster, "set", f"qos={','.join(names)}")))
    for login, user in {SHARED: UserSpec(), **fleet_users.users}.items():
        set_ = (f"Fairshare={user.share}", f"GrpTRES=node={-1 if user.nodes is None else user.nodes}")
        found += [
            SacctmgrCommand(("add", "account", login), may_fail=True),
            SacctmgrCommand(("modify", "account", login, "set", *set_)),
            SacctmgrCommand(("add", "user", "@me", f"account={login}"), may_fail=True),
        ]
    return tuple(found)


def spending_of(submissions: Iterable[Submission], usd_of: Mapping[str, float]) -> dict[str, float]:
    """Return the USD that each user has spent, from *usd_of* each job."""
    found: dict[str, float] = {}
    for submission in submissions:
        found[submission.user] = found.get(submission.user, 0.0) + usd_of.get(submission.name, 0.0)
    return found


def over_budget(fleet_users: FleetUsers, usd: Mapping[str, float]) -> frozenset[str]:
    """Return the users whose budget is spent."""
    return frozenset(
        login for login, user in fleet_users.users.items()
        if user.budget_usd is not None and usd.get(login, 0.0) >= user.budget_usd
    )  # fmt: skip
