"""What an observation of a long-running operation means."""

from collections.abc import Callable

from orchestrator.domain.observation import Operation, OperationResult
from orchestrator.errors import NotFoundError, Retry, TpuctlError


def polled(operation: Operation, look: Callable[[], OperationResult]) -> OperationResult:
    """
    Call *look*. When the answer is missing, the operation counts as not done.

    Operations are forgotten after some days: then it is done, and only the resource shows the result.
    """
    try:
        return look()
    except NotFoundError as error:
        return OperationResult(operation, True, Retry.UNKNOWN, error.code, error.message)
    except TpuctlError as error:
        return OperationResult(operation, False, message=error.message)


def failed(operation: Operation, error: TpuctlError) -> OperationResult:
    """Return the result of an operation that is done and carries an error."""
    return OperationResult(operation, True, error.retry, error.code, error.message, error.hint)


def described(operation: Operation) -> str:
    """Return what the operation does, as messages name it."""
    return f"{operation.verb.word} {operation.kind.value} {operation.name} in {operation.zone}"
