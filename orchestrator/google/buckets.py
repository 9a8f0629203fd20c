"""Manage buckets over Cloud Storage: private, and writable for machines except the controller's objects."""

from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from orchestrator.domain.bucket_grants import TITLE, Grant, grants
from orchestrator.domain.machines.scopes import BUCKET_ROLE, READER_ROLE, WRITER_ROLE
from orchestrator.domain.names import ADOPTED_LABEL, DEPLOYMENT_LABEL
from orchestrator.domain.observation import Bucket, ForeignBucket, Observed
from orchestrator.domain.ports import NewBucket
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.unknown_on_error import observed

OURS = (BUCKET_ROLE, READER_ROLE, WRITER_ROLE)
BATCH = 100
"""Requests in one batch call, as many as Cloud Storage takes."""
FEW = 5
"""Most objects to list as proof that a bucket is not empty."""
POLICY_TRIES = 5
EMPTY_TRIES = 3


class GcsBuckets:
    """
    Observe, create and delete buckets.

    Bucket names are global, and ours can be guessed. So a bucket counts as ours only if the project's own
    list shows it; a foreign bucket of that name never gets our data. *adopted* buckets were named by the user
    and may belong to another project.
    """

    def __init__(self, clients: Clients, *, adopted: bool = False) -> None:
        self._clients = clients
        self._adopted = adopted

    def observe(self, name: str) -> Observed[Bucket]:
        """Observe one bucket; errors become Unknown."""
        return observed(lambda: self._found(name))

    def create(self, new: NewBucket) -> None:
        """
        Create the bucket and grant the machines' roles; raise ConflictError if the name is taken.

        A bucket of ours that exists gets what a killed create left undone.
        """
        try:
            self._insert(new)
        except ConflictError:
            self._check_ours(new)
        self._grant(new)

    def delete(self, name: str) -> None:
        """
        Delete the bucket with all objects; do nothing if it does not exist.

        Raise ConflictError if another process keeps writing while it is emptied.
        """
        for _ in range(EMPTY_TRIES):
            try:
                self._empty(name)
                with translated(f"delete bucket '{name}'"):
                    self._bucket(name).delete(**self._clients.mutating)
            except NotFoundError:
                return
            except ConflictError:
                # Machines that are being stopped may still write; those objects are deleted too.
                continue
            return
        raise still_written(name)

    def empty(self, name: str, prefix: str, keep: Container[str] = ()) -> None:
        """Delete all objects under *prefix* except the names in *keep*; do nothing if the bucket does not exist."""
        with suppress(NotFoundError):
            self._empty(name, prefix, keep)

    def inspect(self, name: str) -> Observed[ForeignBucket]:
        """Observe one bucket of any owner, with what an adoption needs to know; errors become Unknown."""

        def read() -> ForeignBucket:
            storage, reading = self._clients.storage, self._clients.reading
            with translated(f"read bucket '{name}'"):
                bucket = storage.get_bucket(name, **reading)
                listed = storage.list_buckets(prefix=name, **reading)
                own = any(one.name == name for one in listed)
                blobs = storage.list_blobs(name, versions=True, max_results=FEW, **reading)
                policy = bucket.get_iam_policy(requested_policy_version=3, **reading)
                return foreign_bucket(bucket, own, [blob.name for blob in blobs], policy.bindings)

        return observed(read)

    def add_labels(self, name: str, labels: Mapping[str, str], version: int) -> None:
        """Add *labels* to a bucket; raise ConflictError if its settings are no longer those of *version*."""
        with translated(f"label bucket '{name}'"):
            bucket = self._clients.storage.get_bucket(name, **self._clients.reading)
            bucket.labels = {**bucket.labels, **labels}
            bucket.patch(if_metageneration_match=version, **self._clients.mutating)

    def remove_labels(self, made: NewBucket, labels: Sequence[str]) -> None:
        """Remove *labels* and the grants of `create` from a bucket; do nothing if it does not exist."""
        try:
            with translated(f"give back bucket '{made.name}'"):
                bucket = self._clients.storage.get_bucket(made.name, **self._clients.reading)
                # The grants first: without the label, no later command would find the bucket and remove them.
                self._grant_once(bucket, (), grants_of(made))
                bucket.labels = {key: one for key, one in bucket.labels.items() if key not in labels}
                bucket.patch(**self._clients.mutating)
        except NotFoundError:
            return

    def _found(self, name: str) -> Bucket | None:
        with translated(f"read bucket '{name}'"):
            if self._adopted:
                return bucket_of(self._clients.storage.get_bucket(name, **self._clients.reading))
            # Not `get_bucket`: a foreign bucket that lets us read it would look like ours.
            listed = self._clients.storage.list_buckets(prefix=name, **self._clients.reading)
            return next((bucket_of(bucket) for bucket in listed if bucket.name == name), None)

    def _insert(self, new: NewBucket) -> None:
        with translated(f"create bucket '{new.name}' in {new.location}"):
            bucket = self._bucket(new.name)
            bucket.labels = dict(new.labels)
            bucket.iam_configuration.uniform_bucket_level_access_enabled = True
            bucket.iam_configuration.public_access_prevention = "enforced"
            bucket.soft_delete_policy.retention_duration_seconds = new.soft_delete
            self._clients.storage.create_bucket(bucket, location=new.location, **self._clients.mutating)

    def _check_ours(self, new: NewBucket) -> None:
        held = self._found(new.name)
        mark = new.labels.get(DEPLOYMENT_LABEL)
        if held is None or mark is None or held.labels.get(DEPLOYMENT_LABEL) != mark:
            raise not_ours(new.name)
        # An adopted bucket's settings are its owner's.
        if ADOPTED_LABEL in held.labels:
            return
        if new.soft_delete and held.soft_delete_seconds != new.soft_delete:
            with translated(f"set the soft delete of bucket '{new.name}'"):
                bucket = self._bucket(new.name)
                bucket.soft_delete_policy.retention_duration_seconds = new.soft_delete
                bucket.patch(**self._clients.mutating)

    def _grant(self, new: NewBucket, tries: int = POLICY_TRIES) -> None:
        """Grant the machines their roles on this bucket, without overwriting other changes of the policy."""
        try:
            with translated(f"grant roles on bucket '{new.name}' to {new.writer}"):
                self._grant_once(self._bucket(new.name), grants_of(new))
        except ConflictError:
            if tries <= 1:
                raise
            self._grant(new, tries - 1)

    def _grant_once(self, bucket: Any, wanted: tuple[Grant, ...], unwanted: tuple[Grant, ...] = ()) -> None:
        # The policy's etag is sent back: if the policy has changed meanwhile, this raises ConflictError, and
        # we read again.
        policy = bucket.get_iam_policy(requested_policy_version=3, **self._clients.reading)
        held = [{**binding, "members": set(binding["members"])} for binding in policy.bindings]
        fresh = with_grants(without_grants(held, unwanted), wanted)
        if fresh == held:
            return
        policy.version = 3
        policy.bindings = fresh
        bucket.set_iam_policy(policy, **self._clients.mutating)

    def _empty(self, name: str, prefix: str = "", keep: Container[str] = ()) -> None:
        """Delete objects in batches, each by its generation, so that noncurrent versions are deleted too."""
        with translated(f"empty bucket '{name}'"):
            fields = "items(name,generation),nextPageToken"
            listed = self._clients.storage.list_blobs(
                name, prefix=prefix or None, versions=True, fields=fields, **self._clients.reading
            )
            rest = (blob for blob in listed if blob.name not in keep)
            while blobs := list(islice(rest, BATCH)):
                self._delete_batch(name, blobs)

    def _delete_batch(self, name: str, blobs: list[Any]) -> None:
        """Delete some objects; those that no longer exist are ignored."""
        bucket = self._bucket(name)
        # A missing object can stop the others of its batch; the next try of `delete` lists them again.
        try:
            with translated(f"empty bucket '{name}'"), self._clients.storage.batch():
                for blob in blobs:
                    bucket.blob(blob.name, generation=blob.generation).delete(**self._clients.mutating)
        except NotFoundError:
            return

    def _bucket(self, name: str) -> Any:
        return self._clients.storage.bucket(name)


def bucket_of(bucket: Any) -> Bucket:
    """Convert a storage Bucket to our value."""
    access = bucket.iam_configuration
    return Bucket(
        name=bucket.name,
        location=(bucket.location or "").lower(),
        labels=dict(bucket.labels),
        soft_delete_seconds=int(bucket.soft_delete_policy.retention_duration_seconds or 0),
        uniform_access=bool(access.uniform_bucket_level_access_enabled),
        public_access_prevented=access.public_access_prevention == "enforced",
    )


def foreign_bucket(
    bucket: Any, own: bool, objects: Sequence[str], bindings: Sequence[Mapping[str, Any]]
) -> ForeignBucket:
    """Convert a storage Bucket of another owner to our value."""
    everybody = {"allUsers", "allAuthenticatedUsers"}
    return ForeignBucket(
        bucket_of(bucket),
        own_project=own,
        storage_class=bucket.storage_class or "STANDARD",
        retention=int(bucket.retention_period or 0),
        versioning=bool(bucket.versioning_enabled),
        deletes=any(rule["action"]["type"] == "Delete" for rule in bucket.lifecycle_rules),
        held=bool(bucket.default_event_based_hold),
        requester_pays=bool(bucket.requester_pays),
        public=any(everybody & set(binding["members"]) for binding in bindings),
        objects=tuple(objects),
        version=int(bucket.metageneration),
    )


def grants_of(new: NewBucket) -> tuple[Grant, ...]:
    """Return the grants of a bucket's machines."""
    return grants(new.name, new.writer, new.vm, loop=new.loop)


def with_grants(bindings: Sequence[dict[str, Any]], wanted: Collection[Grant]) -> list[dict[str, Any]]:
    """
    Return a policy's bindings, whose members are sets, with the *wanted* grants.

    Unconditional grants of an earlier version to the same accounts are removed. Other bindings stay,
    including those of accounts without a wanted grant.
    """
    members = {grant.member for grant in wanted}
    fresh = []
    for binding in bindings:
        title = (binding.get("condition") or {}).get("title", "")
        made_by_us = binding["role"] in OURS and title in ("", TITLE)
        rest = binding["members"] - (members if made_by_us else set())
        if rest or not binding["members"]:
            fresh.append({**binding, "members": rest})
    for grant in wanted:
        condition = {"condition": grant.condition} if grant.condition else {}
        fresh.append({"role": grant.role, "members": {grant.member}, **condition})
    # Google groups bindings in its own way, so an equal policy is not written again.
    return list(bindings) if _triples(fresh) == _triples(bindings) else fresh


def without_grants(bindings: Sequence[dict[str, Any]], unwanted: Collection[Grant]) -> list[dict[str, Any]]:
    """Return a policy's bindings, whose members are sets, without the grants of `with_grants`."""
    grants = {(g.role, g.member, str((g.condition or {}).get("expression", ""))) for g in unwanted}
    remaining = []
    for binding in bindings:
        condition = str((binding.get("condition") or {}).get("expression", ""))
        gone = {m for m in binding["members"] if (binding["role"], m, condition) in grants}
        if not gone or binding["members"] - gone:
            remaining.append({**binding, "members": binding["members"] - gone})
    return remaining


def _triples(bindings: Sequence[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (binding["role"], member, str((binding.get("condition") or {}).get("expression", "")))
        for binding in bindings
        for member in binding["members"]
    }


def not_ours(name: str) -> ConflictError:
    """Return the error for a bucket name that is taken."""
    return ConflictError(
        f"create bucket '{name}': the name is taken by another project",
        hint="choose another bucket.name in tpuctl.yaml, then run: tpuctl plan",
        changed="nothing was changed",
    )


def still_written(name: str) -> ConflictError:
    """Return the error for a bucket that is being written to while it is emptied."""
    return ConflictError(
        f"delete bucket '{name}': another process keeps writing to it",
        aborted=True,
        hint="stop that process, then run: tpuctl down --delete-data",
        changed="some objects may be deleted; the bucket still exists",
    )
