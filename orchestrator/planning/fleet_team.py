"""
Users and priorities of a fleet: what Slurm is told of them, and whose budget is used up.

Pure. Shares, limits and the order of the queue are Slurm's; money is ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.spec import FleetSpec, PrioritySpec, UserSpec
from orchestrator.planning.fleet import Order

NORMAL = "normal"
"""The priority of a job that names none; Slurm has a QOS of this name from the beginning."""
SHARED = "shared"
"""The account of jobs that nobody has submitted under a login."""
NO_LOGINS = frozenset({SHARED, "root"})


@dataclass(frozen=True)
class Team:
    """Hold who may use a fleet, and which priorities there are."""

    users: Mapping[str, UserSpec] = field(default_factory=dict)
    priorities: Mapping[str, PrioritySpec] = field(default_factory=dict)

    @property
    def needs_database(self) -> bool:
        """Say whether Slurm must have its database: without it, it knows neither shares nor priorities."""
        return bool(self.users or self.priorities)

    def options(self, order: Order) -> tuple[str, str]:
        """Return the account and the QOS under which Slurm runs a job, both empty without a database."""
        if not self.needs_database:
            return "", ""
        user = order.user if order.user in self.users else SHARED
        return user, order.priority if order.priority in self.priorities else NORMAL


def team_of(fleet: FleetSpec | None) -> Team:
    """Return what a deployment file says."""
    return Team(fleet.users, fleet.priorities) if fleet else Team()


def below(priorities: Mapping[str, PrioritySpec], name: str) -> tuple[str, ...]:
    """Return the priorities that one goes before, the nearest first; it is among them where they form a circle."""
    found: list[str] = []
    over = priorities[name].over if name in priorities else None
    while over is not None and over not in found:
        found.append(over)
        over = priorities[over].over if over in priorities else None
    return tuple(found)


@dataclass(frozen=True)
class Words:
    """Hold the words of a command for sacctmgr; one that *may_fail* does so when what it adds is there."""

    words: tuple[str, ...]
    may_fail: bool = False


def accounts(cluster: str, team: Team) -> tuple[Words, ...]:
    """
    Return what sacctmgr is told: again and again the same has no effect. `@me` stands for Slurm's Unix user.

    Nothing is taken away: tasks of a user who has left the file may still run.
    """
    names = tuple(dict.fromkeys((NORMAL, *team.priorities)))
    found = [Words(("add", "cluster", cluster), may_fail=True)]
    found += [Words(("add", "qos", name), may_fail=True) for name in names]
    for name in names:
        # First all of it is taken away: sacctmgr refuses what would be a circle with what was said before, and an
        # empty list is one to it.
        others = ",".join(one for one in names if one != name)
        set_ = (
            f"Priority={len(below(team.priorities, name)) + 1}",
            *([f"Preempt-={others}"] if others else []),
        )
        found.append(Words(("modify", "qos", name, "set", *set_)))
    for name in names:
        lower = below(team.priorities, name)
        if name in team.priorities and team.priorities[name].preempts:
            found.append(Words(("modify", "qos", name, "set", f"Preempt={','.join(lower)}")))
    found.append(Words(("modify", "cluster", cluster, "set", f"qos={','.join(names)}")))
    for login, user in {SHARED: UserSpec(), **team.users}.items():
        set_ = (f"Fairshare={user.share}", f"GrpTRES=node={-1 if user.nodes is None else user.nodes}")
        found += [
            Words(("add", "account", login), may_fail=True),
            Words(("modify", "account", login, "set", *set_)),
            Words(("add", "user", "@me", f"account={login}"), may_fail=True),
        ]
    return tuple(found)


def spending_of(orders: Iterable[Order], usd_of: Mapping[str, float]) -> dict[str, float]:
    """Return what each user has spent in USD, of what each job has cost."""
    found: dict[str, float] = {}
    for order in orders:
        found[order.user] = found.get(order.user, 0.0) + usd_of.get(order.name, 0.0)
    return found


def over_budget(team: Team, usd: Mapping[str, float]) -> frozenset[str]:
    """Return the users whose budget is used up."""
    return frozenset(
        login for login, user in team.users.items()
        if user.budget_usd is not None and usd.get(login, 0.0) >= user.budget_usd
    )  # fmt: skip
