"""
Map every refusal of Google's APIs to one of our errors, with its retry class and a hint.

Status, reason and details decide. Texts decide only if Google uses one status for two meanings (docs/facts.md
1.6 and the error table); each such text is listed in `_BY_TEXT`.
"""

from collections.abc import Callable

from orchestrator.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    MissingPermissionError,
    NotFoundError,
    PreconditionError,
    QuotaError,
    TpuctlError,
    TransientError,
    UnknownCloudError,
    UsageError,
)
from orchestrator.google import hints
from orchestrator.google.refusal import GoogleRefusal

MAX_MESSAGE = 300

_NOTHING = "this request changed nothing"
_UNSURE = "it is not known whether this request was carried out; the next observation of the cloud shows it"

ErrorMaker = Callable[[GoogleRefusal, str], TpuctlError]


def _makes(
    kind: type[TpuctlError], code: str, hint: str | Callable[[GoogleRefusal], str], changed: str = _NOTHING
) -> ErrorMaker:
    return lambda found, text: kind(
        text, code=code, hint=hint if isinstance(hint, str) else hint(found), changed=changed
    )


_CLOSED_API = _makes(AuthError, "TPU-203", hints.enable_api)
_NO_PERMISSION = _makes(MissingPermissionError, "TPU-202", hints.grant_role)
NO_LOGIN = _makes(AuthError, "TPU-201", hints.LOG_IN)
_NO_ZONE = _makes(UsageError, "TPU-121", hints.OTHER_ZONE)
_REFUSED = _makes(UsageError, "TPU-120", hints.FIX_FILE)
_NO_NETWORK = _makes(UsageError, "TPU-122", hints.NAME_NETWORK)
_NO_DISK = _makes(UsageError, "TPU-124", hints.NAME_DISK)
_NO_MACHINE = _makes(UsageError, "TPU-125", hints.name_machine)
_POLICY = _makes(AuthError, "TPU-204", hints.obey_policy)
_NO_SECRET_SCOPE = _makes(AuthError, "TPU-252", hints.WIDER_SCOPE)
_NO_PAYER = _makes(MissingPermissionError, "TPU-202", hints.use_project)
_OTHER_PAYER = _makes(AuthError, "TPU-205", hints.set_quota_project)
_CAPACITY = _makes(CapacityError, "TPU-300", hints.MORE_ZONES)
_RESERVED = _makes(CapacityError, "TPU-301", hints.MORE_ZONES)
_ONLY_RESERVED = _makes(CapacityError, "TPU-302", hints.NO_RESERVATION_MEANT)
_QUOTA = _makes(QuotaError, "TPU-350", hints.more_quota)
_NO_FLEX_START = _makes(QuotaError, "TPU-351", hints.FLEX_START)
_TRANSIENT = _makes(TransientError, "TPU-400", hints.WAIT, _UNSURE)
NETWORK = _makes(TransientError, "TPU-401", hints.CHECK_NETWORK, _UNSURE)
_RATE = _makes(TransientError, "TPU-402", hints.WAIT)
CORRUPT = _makes(TransientError, "TPU-403", hints.WAIT, "damaged data was refused; nothing of it was used")
_PREEMPTED = _makes(TransientError, "TPU-405", hints.WAIT, "it was preempted while it was being created")
_NOT_READY = _makes(TransientError, "TPU-406", hints.WAIT)
_MISSING = _makes(NotFoundError, "TPU-404", hints.READ_STATUS)
_TAKEN = _makes(ConflictError, "TPU-409", hints.READ_STATUS)
_PRECONDITION = _makes(PreconditionError, "TPU-412", hints.READ_STATUS)
UNKNOWN = _makes(UnknownCloudError, "TPU-499", hints.REPORT, _UNSURE)


def _busy(found: GoogleRefusal, text: str) -> TpuctlError:
    return ConflictError(text, aborted=True, code="TPU-408", hint=hints.WAIT, changed=_NOTHING)


def _narrow(found: GoogleRefusal, text: str) -> TpuctlError:
    # Machines have the scopes for everything else, so elsewhere it is one more permission that is missing.
    secret = found.service == "secretmanager.googleapis.com"
    return (_NO_SECRET_SCOPE if secret else _NO_PERMISSION)(found, text)


_BY_REASON: dict[str, ErrorMaker] = {
    "SERVICE_DISABLED": _CLOSED_API,
    "accessNotConfigured": _CLOSED_API,
    "USER_PROJECT_DENIED": _NO_PAYER,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _narrow,
    "LOCATION_POLICY_VIOLATED": _NO_ZONE,
    "RATE_LIMIT_EXCEEDED": _RATE,
    "rateLimitExceeded": _RATE,
    "userRateLimitExceeded": _RATE,
    "quotaExceeded": _QUOTA,
    "QUOTA_EXCEEDED": _QUOTA,
    "ZONE_RESOURCE_POOL_EXHAUSTED": _CAPACITY,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": _CAPACITY,
    "RESOURCE_NOT_READY": _NOT_READY,
    "resourceNotReady": _NOT_READY,
    "resourceInUseByAnotherResource": _busy,
    "alreadyExists": _TAKEN,
    "conditionNotMet": _PRECONDITION,
    "CUSTOM_ORG_POLICY_VIOLATION": _POLICY,
}
# (status, part of the text in lower case, maker)
_BY_TEXT: tuple[tuple[str, str, ErrorMaker], ...] = (
    ("RESOURCE_EXHAUSTED", "no more capacity", _CAPACITY),
    ("RESOURCE_EXHAUSTED", "quota", _QUOTA),
    ("FAILED_PRECONDITION", "insufficient reserved capacity", _RESERVED),
    ("NOT_FOUND", "reservation not found", _ONLY_RESERVED),
    ("INVALID_ARGUMENT", "flex_start provisioning model is not supported", _NO_FLEX_START),
    ("INVALID_ARGUMENT", "while in state preempted", _PREEMPTED),
    ("INVALID_ARGUMENT", "due to preemption", _PREEMPTED),
    ("INVALID_ARGUMENT", "resource.machinetype", _NO_MACHINE),
    ("INVALID_ARGUMENT", "subnetwork", _NO_NETWORK),
    ("INVALID_ARGUMENT", "referenced network", _NO_NETWORK),
    ("INVALID_ARGUMENT", "already being used", _busy),
    ("INVALID_ARGUMENT", "/disks/", _NO_DISK),
    ("INVALID_ARGUMENT", "/networks/", _NO_NETWORK),
    ("NOT_FOUND", "/networks/", _NO_NETWORK),
    ("NOT_FOUND", "/subnetworks/", _NO_NETWORK),
)
_POLICY_NAMES = ("CONDITION_NOT_MET", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "PERMISSION_DENIED")
_BY_NAME: dict[str, ErrorMaker] = {
    "CANCELLED": _TRANSIENT,
    "INVALID_ARGUMENT": _REFUSED,
    "DEADLINE_EXCEEDED": _TRANSIENT,
    "NOT_FOUND": _MISSING,
    "ALREADY_EXISTS": _TAKEN,
    "PERMISSION_DENIED": _NO_PERMISSION,
    "FAILED_PRECONDITION": _REFUSED,
    "ABORTED": _busy,
    "OUT_OF_RANGE": _REFUSED,
    "UNIMPLEMENTED": _REFUSED,
    "INTERNAL": _TRANSIENT,
    "UNAVAILABLE": _TRANSIENT,
    "UNAUTHENTICATED": NO_LOGIN,
    "CONDITION_NOT_MET": _PRECONDITION,
}


def to_error(found: GoogleRefusal, what: str) -> TpuctlError:
    """Return our error for a refusal; *what* begins its message, for example `create TPU node 'a'`."""
    return _choose(found)(found, one_line(what, found.message))


def one_line(what: str, message: str) -> str:
    """Return an error message of one line and limited length: what was tried and why it failed."""
    line = " ".join(f"{what}: {message}".split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def too_many(where: str, most: int) -> TpuctlError:
    """Return the error for a list that is longer than any of ours; machines may write any number of objects."""
    return UnknownCloudError(
        f"list {where}: more than {most} objects",
        hint="delete the objects there that are not tpuctl's",
        changed="nothing was changed",
    )


def _choose(found: GoogleRefusal) -> ErrorMaker:
    if found.name == "NOT_FOUND" and not found.structured:
        # A proxy or a wrong address answers 404 too; only Google's own form proves absence.
        return UNKNOWN
    # Before the reasons: violated constraints come under four different statuses, which have other meanings too.
    if found.constraint and found.name in _POLICY_NAMES:
        return _POLICY
    # The machine-readable reason precedes texts, which Google changes without notice.
    for reason in found.reasons:
        if reason in _BY_REASON and _BY_REASON[reason] is _CLOSED_API and found.charged_elsewhere:
            return _OTHER_PAYER
        if reason in _BY_REASON:
            return _BY_REASON[reason]
    if found.detail("QuotaFailure") is not None:
        return _QUOTA
    lowered = found.message.lower()
    for name, part, maker in _BY_TEXT:
        if found.name == name and part in lowered and not (maker is _NO_NETWORK and found.of_network):
            return maker
    if found.name == "RESOURCE_EXHAUSTED":
        # On an operation it means the zone's stock; on a call without quota details, the rate of requests.
        return _CAPACITY if found.in_operation else _RATE
    return _BY_NAME.get(found.name, UNKNOWN)
