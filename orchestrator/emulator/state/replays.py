"""Request ids: the same call with the same id is the same operation."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.emulator.state import vm_rules
from orchestrator.emulator.state.operations import Operation
from orchestrator.emulator.state.world import LocalCloud


def once(
    cloud: LocalCloud, call: str, request_id: str, body: Mapping[str, Any], act: Callable[[], Operation]
) -> Operation:
    """
    Make a mutating Compute call, `POST /path`; the same *request_id* gives the same operation again.

    Errors: ApiError 400 for a zero or malformed id, and for one that came before with another body
    (the real text of that refusal was not seen).
    """
    vm_rules.check_request_id(request_id)
    state, place = cloud.kernel.state, f"{call} {request_id}"
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    if request_id and place in state.replays:
        known, name = state.replays[place]
        if known != digest:
            raise vm_rules.invalid(f"The requestId '{request_id}' was used before with another request body.")
        return state.operations[name]
    operation = act()
    if request_id:
        operation.request_id = request_id
        state.replays[place] = (digest, operation.name)
    return operation
