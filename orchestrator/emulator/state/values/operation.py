"""Define long-running operations of both APIs."""

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
    One operation; not frozen, as it changes over time.

    *scope* is `zones/Z`, `regions/R` or `global`. *target* is the path of the resource from `projects/` on.
    *planned* is the error that it will end with, *error* the one it ended with. *result* is a copy of the
    resource at the end.
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
