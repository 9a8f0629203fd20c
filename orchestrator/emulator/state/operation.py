"""Long-running operations of both APIs as one value."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from orchestrator.emulator.state.api_errors import OperationError


class Api(Enum):
    TPU = "tpu"
    COMPUTE = "compute"


@dataclass
class Operation:
    """
    Record one operation; it changes as time goes on, so it is not frozen.

    *scope* is `zones/Z`, `regions/R` or `global`. *target* is the path of the resource from
    `projects/` on. *planned* is the error that waits for the operation; *error* the one it
    ended with. *result* is a copy of the resource at the end.
    """

    name: str
    numeric_id: int
    api: Api
    scope: str
    verb: str
    target: str
    target_id: int
    user: str
    created: float
    ended: float | None = None
    planned: OperationError | None = None
    error: OperationError | None = None
    result: Any = None
    request_id: str = ""
    cancel_requested: bool = False
    forgotten: bool = False

    @property
    def done(self) -> bool:
        return self.ended is not None
