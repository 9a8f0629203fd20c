"""Refer to and poll long-running operations of TPU (google.longrunning) and Compute Engine, without waiting."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from orchestrator.domain.observation import Operation, OperationResult
from orchestrator.domain.plan import Kind, Verb
from orchestrator.errors import NotFoundError, TpuctlError
from orchestrator.google.client_errors import translate_compute, translate_status, translated
from orchestrator.google.lean_imports import imported

_NAME = re.compile(r"projects/[^/]+/locations/[^/]+/operations/[^/]+")


def of_tpu(future: Any, verb: Verb, name: str, zone: str, incarnation: int | None) -> Operation:
    """Return a reference to the operation of a TPU call's future, which itself is not used."""
    started = _created(future.operation.metadata)
    return Operation(future.operation.name, Kind.NODE, verb, name, zone, incarnation, started)


def of_json(
    answer: Mapping[str, Any], verb: Verb, name: str, zone: str, incarnation: int | None
) -> Operation:
    """Return a reference to a queued resource's operation from its JSON."""
    metadata = answer.get("metadata")
    created = str(metadata.get("createTime", "")) if isinstance(metadata, dict) else ""
    return Operation(str(answer["name"]), Kind.QUEUED, verb, name, zone, incarnation, epoch(created))


def _created(metadata: Any) -> float:
    """
    Return when an operation was created, 0 if its metadata, an Any of any type, does not say.

    The future's own `metadata` raises TypeError for every type but `google.cloud.tpu.v2.OperationMetadata`.
    """
    json_format = imported("google.protobuf.json_format")
    try:
        shown = json_format.MessageToDict(metadata)
    except (json_format.ParseError, TypeError):
        return 0.0
    inside = shown.get("value")
    fields = inside if isinstance(inside, dict) else shown
    return epoch(str(fields.get("createTime", "")))


def of_compute(answer: Any, verb: Verb, name: str, zone: str) -> Operation:
    """Return a reference to the operation that a `*_unary` call returned."""
    started = epoch(answer.insert_time or answer.start_time)
    return Operation(answer.name, Kind.VM, verb, name, zone, None, started)


def poll_tpu(client: Any, operation: Operation, limits: Mapping[str, Any]) -> OperationResult:
    """Poll a TPU operation once."""

    def read() -> OperationResult:
        if not _NAME.fullmatch(operation.id):
            # The name comes from the record, which may be forged; the client would raise an error of its
            # own for it.
            raise NotFoundError(f"{described(operation)}: {operation.id[:80]!r} is not an operation")
        answer = client.get_operation({"name": operation.id}, **limits)
        if not answer.done:
            return OperationResult(operation, done=False)
        if not answer.error.code:
            return OperationResult(operation, done=True)
        error = answer.error
        return failed(
            operation, translate_status(error.code, error.message, error.details, what=described(operation))
        )

    return _read_translated(operation, read)


def poll_compute(
    client: Any, project: str, operation: Operation, limits: Mapping[str, Any]
) -> OperationResult:
    """Poll a Compute Engine operation once. DONE with an error inside is a failure."""

    def read() -> OperationResult:
        answer = client.get(project=project, zone=operation.zone, operation=operation.id, **limits)
        error = compute_error(answer, described(operation))
        if error is not None:
            return failed(operation, error)
        return OperationResult(operation, done=answer.status is type(answer).Status.DONE)

    return _read_translated(operation, read)


def compute_error(answer: Any, what: str) -> TpuctlError | None:
    """
    Return the error inside a compute operation, or None.

    The client takes a DONE operation without httpErrorStatusCode for a success, even if it lists errors
    (docs/facts.md 2.1), so both places are read.
    """
    status = answer.http_error_status_code
    if answer.error.errors:
        first = answer.error.errors[0]
        return translate_compute(first.code, first.message, status, what=what)
    if status:
        return translate_compute("", answer.http_error_message, status, what=what)
    return None


def epoch(text: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch; 0 if it is missing or unreadable."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _read_translated(operation: Operation, read: Callable[[], OperationResult]) -> OperationResult:
    def translating() -> OperationResult:
        with translated(f"poll operation '{described(operation)}'"):
            return read()

    return read_once(operation, translating)


def read_once(operation: Operation, read: Callable[[], OperationResult]) -> OperationResult:
    """
    Call *read*; without an answer the operation counts as not done.

    Google forgets operations after some days: then it is done, and only the resource shows the result.
    """
    try:
        return read()
    except NotFoundError as error:
        # Neither a success nor a failure: a wrong guess would create a second TPU or lose a machine.
        return OperationResult(operation, True, None, error.code, error.message, forgotten=True)
    except TpuctlError as error:
        return OperationResult(operation, False, message=error.message)


def failed(operation: Operation, error: TpuctlError) -> OperationResult:
    """Return the result of an operation that is done and carries an error."""
    return OperationResult(operation, True, error.retry, error.code, error.message, error.hint)


def described(operation: Operation) -> str:
    """Return what the operation does, for messages."""
    return f"{operation.verb.word} {operation.kind.title} {operation.name} in {operation.zone}"
