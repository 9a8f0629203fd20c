"""Store who may use a fleet, and who has spent a budget, in its bucket."""

from collections.abc import Callable
from typing import Any, TypeVar

from orchestrator.contract.bucket.object_names import OVER_BUDGET, USERS
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.ports import Store
from orchestrator.engine.records.record_format import adapter
from orchestrator.errors import TpuctlError
from orchestrator.planning.fleet.users import FleetUsers

T = TypeVar("T")
SCHEMA = 1


def read_users(store: Store) -> FleetUsers:
    """
    Return the users that the fleet's last `up` stored, none (everyone is admitted) if there are none.

    Raise TpuctlError if it cannot be read.
    """
    found = _read(
        store, USERS, "the fleet's users", lambda body: adapter(FleetUsers).validate_python(body["team"])
    )
    return found or FleetUsers()


def write_users(store: Store, fleet_users: FleetUsers) -> None:
    """Store who may use the fleet."""
    # The key has the older word, like the object: fleets that are up have it.
    body = {"schema": SCHEMA, "team": adapter(FleetUsers).dump_python(fleet_users, mode="json")}
    store.write(USERS, bytes_with_checksum(body))


def over_budget(store: Store) -> frozenset[str]:
    """
    Return the users whose budget is spent, as the fleet's watch last stored it.

    Raise TpuctlError if it cannot be read.
    """
    spent = _read(
        store, OVER_BUDGET, "who has spent a budget", lambda body: frozenset(map(str, body["over_budget"]))
    )
    return spent or frozenset()


def write_over_budget(store: Store, users: frozenset[str]) -> None:
    """Store the users whose budget is spent; write nothing if that is stored already."""
    if users != over_budget(store):
        store.write(OVER_BUDGET, bytes_with_checksum({"schema": SCHEMA, "over_budget": sorted(users)}))


def _read(store: Store, name: str, what: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
    """Return what an object holds, None if there is none. Raise TpuctlError if it cannot be read."""
    held = store.read(name)
    if held is None:
        return None
    try:
        return parse(verified(held.data))
    except (ValueError, KeyError, TypeError) as error:
        raise TpuctlError(
            f"{what} cannot be read: {error}", hint="run: tpuctl fleet up", changed="nothing was changed"
        ) from error
