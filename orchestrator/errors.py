"""
The errors of tpuctl; those of the agent are in `contract/machine_errors.py`.

    TpuctlError
    ├── UsageError            TPU-100  the file, a flag or the working folder is wrong
    ├── AuthError             TPU-200  no credentials, an API that is not enabled, access refused
    │   └── MissingPermissionError  TPU-202  one permission is missing; the login may have others
    ├── CapacityError         TPU-300  a stockout: another zone, or this one later, may have capacity
    ├── QuotaError            TPU-350  the project's quota does not allow more; waiting does not help
    ├── TransientError        TPU-400  the same call may succeed in a moment
    │   └── DiskError         TPU-450  a file of this computer cannot be written
    ├── NotFoundError         TPU-404  the API says that the resource does not exist
    ├── ConflictError         TPU-409  the name is taken, or another process wrote first
    │   └── PreconditionError TPU-412  an object has another generation than expected
    ├── UnknownCloudError     TPU-499  an answer of the cloud that we do not understand
    ├── RemoteError           TPU-500  SSH: unreachable, or a command failed
    │   ├── HostKeyError      TPU-510  an unknown or changed host key
    │   └── NoGcloudError     TPU-501  the route needs gcloud, which is not here
    ├── DamagedRecordError    TPU-610  the deployment's record has a wrong checksum
    ├── LeftoverError         TPU-600  something is left; it is listed
    ├── LeaseHeldError        TPU-601  another tpuctl acts on this deployment
    ├── LimitReachedError     TPU-700  the budget or the time to live is used up
    ├── JobFailedError        TPU-800  the user's job failed too often without progress
    ├── UncommittedError        TPU-810  the job ended with status 0 but without a complete checkpoint
    └── LocalCloudError       TPU-900  the local cloud cannot start, or refuses our request

The code is the class's own; one error may carry a more exact one of the same hundred (`error_codes.py`).
The loop reads the `retry` class only, never a message.
"""

import errno
from enum import Enum
from pathlib import PurePath


class Retry(Enum):
    """Whether and when a failed call may be repeated."""

    PERMANENT = "permanent"
    CAPACITY = "capacity"
    QUOTA = "quota"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"


class TpuctlError(Exception):
    """
    An error for the user: where, what, what was changed, and the next step.

    *code* is `TPU-nnn`, *exit_code* the status of the process, *hint* the next command or step, *changed*
    what was and was not changed. *usual_step* is the next step of a class of errors, for those without a hint.
    """

    code = "TPU-000"
    usual_step = ""
    exit_code = 1
    retry = Retry.PERMANENT

    def __init__(self, message: str, *, hint: str = "", changed: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.changed = changed
        if code:
            self.code = code

    @property
    def next_step(self) -> str:
        """Return what a user does next: the error's own hint, else the usual step of its class."""
        return self.hint or self.usual_step

    def explain(self, *, hint: str = "", changed: str = "") -> None:
        """Replace what is given, where the caller knows more than the place that raised the error."""
        self.hint, self.changed = hint or self.hint, changed or self.changed

    def complete(self, *, hint: str, changed: str) -> None:
        """Add what the place that raised the error did not say."""
        self.hint, self.changed = self.hint or hint, self.changed or changed

    def as_dict(self) -> dict[str, object]:
        """Return the error as `--json` prints it."""
        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "retry": self.retry.value,
            "message": self.message,
            "changed": self.changed,
            "hint": self.next_step,
            "help": f"tpuctl help {self.code}",
        }


class UsageError(TpuctlError):
    """Refuse a wrong file, flag or folder before anything is touched."""

    code = "TPU-100"
    exit_code = 2


class AuthError(TpuctlError):
    """Report missing credentials, a missing permission or a disabled API."""

    code = "TPU-200"
    exit_code = 3


class MissingPermissionError(AuthError):
    """Report one missing permission; the login may have others."""

    code = "TPU-202"


class CapacityError(TpuctlError):
    """Report a stockout: the zone has no capacity for such a machine at present."""

    code = "TPU-300"
    exit_code = 4
    retry = Retry.CAPACITY


class QuotaError(TpuctlError):
    """Report that the project's quota does not allow one more."""

    code = "TPU-350"
    exit_code = 4
    retry = Retry.QUOTA


class TransientError(TpuctlError):
    """Report a failure that may not occur again when the same call is repeated."""

    code = "TPU-400"
    usual_step = "run the same command again"
    retry = Retry.TRANSIENT


class DiskError(TransientError):
    """
    Report a file of this computer that cannot be written: the disk is full, or it belongs to another user.

    The same write may succeed once there is space, so the loop continues.
    """

    code = "TPU-450"
    usual_step = "free space there, or correct its owner; then run the same command again"


class NotFoundError(TpuctlError):
    """Report that the API says that the resource does not exist."""

    code = "TPU-404"
    usual_step = "see what exists: tpuctl status --fresh"


class ConflictError(TpuctlError):
    """Report a taken name or a lost race; *aborted* means "busy now, try again"."""

    code = "TPU-409"
    usual_step = "run the same command again: it begins with what exists now"

    def __init__(self, message: str, *, aborted: bool = False, **kwargs: str) -> None:
        super().__init__(message, **kwargs)
        self.aborted = aborted
        if aborted:
            self.retry = Retry.TRANSIENT


class PreconditionError(ConflictError):
    """Report that an object's generation was not the expected one: another process wrote first."""

    code = "TPU-412"


class UnknownCloudError(TpuctlError):
    """Report an answer of the cloud that none of our rules covers."""

    code = "TPU-499"
    usual_step = "see what exists: tpuctl status --fresh; then report the message: tpuctl support"
    retry = Retry.UNKNOWN


class RemoteError(TpuctlError):
    """Report that a machine could not be reached or refused a command."""

    code = "TPU-500"
    usual_step = "see whether the machine is there: tpuctl status --fresh; then run the same command again"
    retry = Retry.TRANSIENT


class HostKeyError(RemoteError):
    """Refuse a machine whose host key is unknown or has changed."""

    code = "TPU-510"
    retry = Retry.PERMANENT


class NoGcloudError(RemoteError):
    """Report that gcloud, needed to reach a machine without external address, is not on this computer."""

    code = "TPU-501"
    retry = Retry.PERMANENT


class DamagedRecordError(TpuctlError):
    """Report a deployment record whose checksum is wrong."""

    code = "TPU-610"
    usual_step = "it is rebuilt from the journal and from what exists; see the result: tpuctl status"


class LeftoverError(TpuctlError):
    """Report what is left after a command that should leave nothing."""

    code = "TPU-600"
    exit_code = 5


class LeaseHeldError(TpuctlError):
    """Report who else acts on the deployment; *asker* is the command to which this one yielded."""

    code = "TPU-601"
    exit_code = 6
    asker = ""


class LimitReachedError(TpuctlError):
    """Report that the budget or the time to live is used up."""

    code = "TPU-700"
    exit_code = 7


class JobFailedError(TpuctlError):
    """Report that the user's job failed too often without progress."""

    code = "TPU-800"


class UncommittedError(TpuctlError):
    """Report a job that exited with status 0 without a complete checkpoint: its files are kept."""

    code = "TPU-810"
    exit_code = 5


class LocalCloudError(TpuctlError):
    """Report a fault of the local cloud itself."""

    code = "TPU-900"


UNFORESEEN = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError
)  # fmt: skip
"""Exceptions that a bug of ours raises for an unexpected value; they end only one part of a pass."""


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
NO_WAY = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EIO}


def disk_error(error: OSError, path: PurePath | None = None) -> DiskError | None:
    """Return the DiskError for an *error* of this computer's disk (full, read-only, quota), else None."""
    where = path or error.filename
    full = error.errno in NO_ROOM
    if not full and not (where and error.errno in NO_WAY):
        return None
    what = "written" if full else "read or written"
    return DiskError(
        f"{where or 'a file of this computer'} cannot be {what}: {(error.strerror or str(error)).lower()}",
        hint="make room, or let this user read and write there; then run the same command again "
        "(TPUCTL_STATE_DIR names another folder for what tpuctl remembers)",
        changed="changes made before this error remain; `tpuctl status` shows them",
    )


class Interrupted(BaseException):
    """End the command after Ctrl-C; *state* says what stays, *next_step* how to continue."""

    def __init__(self, state: str, next_step: str) -> None:
        super().__init__(state, next_step)
        self.state, self.next_step = state, next_step
