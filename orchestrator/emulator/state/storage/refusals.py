"""What Cloud Storage answers when it refuses, with the texts of data/error_messages.csv."""

import csv
from functools import lru_cache
from importlib import resources


class StorageError(Exception):
    """Refuse a request with an HTTP *status*, the JSON *reason* and a *message*."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[int, str, str]]:
    """Read the storage rows of the table: case -> (status, reason, message template)."""
    text = resources.files("orchestrator").joinpath("data/error_messages.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        row["case"]: (int(row["http_status"]), row["reason"], row["message"])
        for row in rows
        if row["api"] == "storage v1"
    }


def known(case: str, **values: str) -> StorageError:
    """Build the error of one row of the table; raise KeyError for a case that it does not have."""
    status, reason, message = _table()[case]
    for name, value in values.items():
        message = message.replace("{" + name + "}", value)
    return StorageError(status, reason, message)


def invalid(message: str) -> StorageError:
    """Build a 400; the wording is ours where Google's is unknown."""
    return StorageError(400, "invalid", message)


def denied(email: str, permission: str, *, on: str) -> StorageError:
    """Build the 403 for an account without a *permission* on a bucket or an object of it (*on*)."""
    error = known("no access", email=email)
    message = error.message.replace("storage.objects.list", permission).replace("bucket.", f"{on}.", 1)
    return StorageError(error.status, error.reason, message)


def no_access(permission: str) -> StorageError:
    """Build the 403 for a caller without credentials that touches somebody else's bucket."""
    error = known("no access", email="Anonymous caller")
    message = error.message.replace("storage.objects.list", permission)
    return StorageError(error.status, error.reason, message)
