"""Recognise repeated calls: one request id is one operation, however often it is sent."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.kernel import Kernel
from orchestrator.emulator.state.values.operation import Operation

_UUID = re.compile(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def once(
    kernel: Kernel,
    call: str,
    request_id: str,
    body: Mapping[str, Any],
    act: Callable[[], Operation],
    refused: Callable[[str], ApiError],
) -> Operation:
    """
    Make a call such as `POST /path`; the same *request_id* returns the same operation again.

    Raise what *refused* returns for a zero or malformed id, and for one used before with another body
    (Google's text for that is not known).
    """
    if not request_id:
        return act()
    if not _UUID.fullmatch(request_id) or not request_id.strip("0-"):
        raise refused(f"Invalid value for field 'requestId': '{request_id}'. Must be a valid, non-zero UUID.")
    state, key = kernel.state, f"{call} {request_id}"
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    known, name = state.replays.get(key, (digest, ""))
    if known != digest:
        raise refused(f"The requestId '{request_id}' was used before with another request body.")
    if name:
        return state.operations[name]
    operation = act()
    operation.request_id = request_id
    state.replays[key] = (digest, operation.name)
    return operation
