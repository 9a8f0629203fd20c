"""
What an answer of the TPU API says of nodes beyond what the client of v2 knows: their next maintenance.

The field is in the API's schema of v2 and in the client of v2alpha1 (docs/facts.md 1.3). The client of v2
drops it, so it is read beside, from the same answer: no further call, and no other version of the API.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from orchestrator.domain.maintenance import FIELD, Maintenance, maintenance_of

_found: ContextVar[dict[str, Maintenance] | None] = ContextVar("found", default=None)


@dataclass(frozen=True)
class Seen:
    """Pair a node, as the client returns it, with the maintenance in its answer."""

    node: Any
    maintenance: Maintenance | None = None

    @property
    def labels(self) -> Any:
        """Return the node's labels."""
        return self.node.labels


def read_beside(session: Any) -> None:
    """Let *session*, a requests session, note what its answers say beside."""
    session.hooks["response"].append(_noted)


@contextmanager
def maintenance_by_name() -> Iterator[dict[str, Maintenance]]:
    """Collect what the answers of this block's calls say, by the node's full name."""
    found: dict[str, Maintenance] = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def _noted(response: Any, **_options: Any) -> None:
    """Note what one answer says; most say nothing, and are not looked into."""
    found = _found.get()
    if found is None or FIELD.encode() not in response.content:
        return
    try:
        body = response.json()
    except ValueError:
        return
    shown = body if isinstance(body, dict) else {}
    listed = shown.get("nodes")
    for node in listed if isinstance(listed, list) else [shown]:
        told = maintenance_of(node.get(FIELD)) if isinstance(node, dict) else None
        if told is not None:
            found[str(node.get("name", ""))] = told
