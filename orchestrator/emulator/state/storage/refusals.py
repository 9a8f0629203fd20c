"""Build the refusals of Cloud Storage, with the texts of data/error_messages.csv."""

from orchestrator.emulator.state.api_errors import ApiError, cases, fill


class StorageError(ApiError):
    """An error of Cloud Storage; *reason* is that of the JSON API."""


def known(case: str, **values: str) -> StorageError:
    """Return the error of one row of the table. Raise KeyError for an unknown case."""
    row = cases()["storage v1", case]
    return StorageError(row.http_status, row.reason, fill(row.message, values))


def invalid(message: str) -> StorageError:
    """Return a 400; the wording is ours where Google's is unknown."""
    return StorageError(400, "invalid", message)


def denied(email: str, permission: str, *, on: str) -> StorageError:
    """Return the 403 for an account without a *permission* on a bucket or an object (*on*)."""
    return known("no access", email=email, permission=permission, resource_kind=on)


def no_access(permission: str) -> StorageError:
    """Return the 403 for a caller without credentials on another owner's bucket."""
    return denied("Anonymous caller", permission, on="bucket")
