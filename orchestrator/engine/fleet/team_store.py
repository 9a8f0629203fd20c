"""Store who may use a fleet, and who has spent a budget, in its bucket."""

from orchestrator.contract.bucket.object_names import SPENT, TEAM
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.ports import Store
from orchestrator.engine.records.record_format import adapter
from orchestrator.errors import TpuctlError
from orchestrator.planning.fleet.team import Team

SCHEMA = 1


def read_team(store: Store) -> Team:
    """
    Return the team that the fleet's last `up` stored, an empty one (everyone is admitted) if there is none.

    Raise TpuctlError if it cannot be read.
    """
    held = store.read(TEAM)
    if held is None:
        return Team()
    try:
        team: Team = adapter(Team).validate_python(verified(held.data)["team"])
    except (ValueError, KeyError, TypeError) as error:
        raise TpuctlError(
            f"the fleet's users cannot be read: {error}",
            hint="run: tpuctl fleet up",
            changed="nothing was changed",
        ) from error
    return team


def write_team(store: Store, team: Team) -> None:
    """Store who may use the fleet."""
    store.write(
        TEAM, bytes_with_checksum({"schema": SCHEMA, "team": adapter(Team).dump_python(team, mode="json")})
    )


def over_budget(store: Store) -> frozenset[str]:
    """Return the users whose budget is spent, as the fleet's watch last stored it."""
    held = store.read(SPENT)
    if held is None:
        return frozenset()
    try:
        return frozenset(map(str, verified(held.data)["over_budget"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TpuctlError(
            f"who has spent a budget cannot be read: {error}",
            hint="run: tpuctl fleet up",
            changed="nothing was changed",
        ) from error


def write_over_budget(store: Store, users: frozenset[str]) -> None:
    """Store the users whose budget is spent; write nothing if that is stored already."""
    if users != over_budget(store):
        store.write(SPENT, bytes_with_checksum({"schema": SCHEMA, "over_budget": sorted(users)}))
