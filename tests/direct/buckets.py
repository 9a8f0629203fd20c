"""Buckets straight on the model."""

from functools import partial
from operator import itemgetter
from typing import Any

from orchestrator.domain.names import DEPLOYMENT_LABEL
from orchestrator.domain.observation import Bucket, Sight
from orchestrator.domain.ports import BucketOrder
from orchestrator.emulator.state.storage import stored as model
from orchestrator.emulator.state.storage.listing import Query
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.errors import ConflictError, NotFoundError, TpuctlError
from orchestrator.google.buckets import (
    BATCH,
    EMPTY_TRIES,
    POLICY_TRIES,
    grants_of,
    not_ours,
    still_written,
    with_grants,
)
from orchestrator.google.observations import observed
from tests.direct.door import Door


class DirectBuckets:
    """Observe, create and delete buckets; *adopted* ones may belong to another project."""

    def __init__(self, door: Door, *, adopted: bool = False) -> None:
        self._door = door
        self._store = door.store
        self._adopted = adopted

    def observe(self, name: str) -> Sight[Bucket]:
        """Look at one bucket; errors become Unknown."""
        return observed(lambda: self._found(name))

    def create(self, order: BucketOrder) -> None:
        """Create the bucket and grant the writer; raise ConflictError when the name is somebody else's."""
        try:
            self._insert(order)
        except ConflictError:
            self._check_ours(order)
        self._grant(order)

    def delete(self, name: str) -> None:
        """Delete the bucket with all objects in it; a bucket that is gone is fine."""
        for _ in range(EMPTY_TRIES):
            try:
                self._empty(name)
                self._delete(name)
            except NotFoundError:
                return
            except ConflictError:
                continue
            return
        raise still_written(name)

    def _found(self, name: str) -> Bucket | None:
        what, buckets = f"look at bucket '{name}'", self._store.buckets
        if self._adopted:
            return self._door.storage(what, "storage.buckets.get", lambda: bucket_of(buckets.get(name)))
        listed = self._door.storage(
            what, "storage.buckets.list", lambda: buckets.list(self._door.project, name)
        )
        return next((bucket_of(bucket) for bucket in listed if bucket.name == name), None)

    def _insert(self, order: BucketOrder) -> None:
        body: dict[str, Any] = {
            "name": order.name,
            "location": order.location,
            "labels": dict(order.labels),
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            "softDeletePolicy": {"retentionDurationSeconds": order.soft_delete},
        }
        self._door.storage(
            f"create bucket '{order.name}' in {order.location}",
            "storage.buckets.insert",
            lambda: self._store.buckets.create(self._door.project, body),
        )

    def _check_ours(self, order: BucketOrder) -> None:
        held = self._found(order.name)
        mark = order.labels.get(DEPLOYMENT_LABEL)
        if held is None or mark is None or held.labels.get(DEPLOYMENT_LABEL) != mark:
            raise not_ours(order.name)
        if order.soft_delete and held.soft_delete_seconds != order.soft_delete:
            body = {"softDeletePolicy": {"retentionDurationSeconds": order.soft_delete}}
            self._door.storage(
                f"set the soft delete of bucket '{order.name}'",
                "storage.buckets.patch",
                lambda: self._store.buckets.patch(order.name, body, Preconditions()),
            )

    def _grant(self, order: BucketOrder, tries: int = POLICY_TRIES) -> None:
        try:
            self._grant_once(order, f"grant roles on bucket '{order.name}' to {order.writer}")
        except ConflictError:
            if tries <= 1:
                raise
            self._grant(order, tries - 1)

    def _grant_once(self, order: BucketOrder, what: str) -> None:
        buckets, name = self._store.buckets, order.name
        policy = self._door.storage(what, "storage.buckets.getIamPolicy", lambda: buckets.policy(name))
        held = [{**binding, "members": set(binding["members"])} for binding in policy["bindings"]]
        fresh = with_grants(held, grants_of(order))
        if fresh == held:
            return
        bindings = [
            {**binding, "members": sorted(binding["members"])}
            for binding in sorted(fresh, key=itemgetter("role"))
        ]
        body = {"etag": policy["etag"], "version": 3, "bindings": bindings}
        self._door.storage(what, "storage.buckets.setIamPolicy", lambda: buckets.set_policy(name, body))

    def _empty(self, name: str) -> None:
        what, token = f"empty bucket '{name}'", ""
        while True:
            query = Query(page_token=token)
            found, page = self._door.storage(what, "storage.objects.list", partial(self._page, name, query))
            for start in range(0, len(found), BATCH):
                self._delete_batch(name, found[start : start + BATCH], what)
            token = page.next_token
            if not token:
                return

    def _page(self, name: str, query: Query) -> Any:
        self._store.buckets.get(name, "storage.objects.list")
        return self._store.objects.page(name, query)

    def _delete_batch(self, name: str, held: list[model.StoredObject], what: str) -> None:
        errors: list[TpuctlError] = []
        for one in held:
            try:
                self._door.storage(what, "storage.objects.delete", partial(self._delete_one, name, one))
            except TpuctlError as error:
                errors.append(error)
        # Of several refusals in one batch the client raises the last.
        if errors and not isinstance(errors[-1], NotFoundError):
            raise errors[-1]

    def _delete_one(self, name: str, one: model.StoredObject) -> None:
        self._store.buckets.get(name, "storage.objects.delete")
        self._store.objects.delete(name, one.name, one.generation, Preconditions())

    def _delete(self, name: str) -> None:
        def act() -> None:
            self._store.buckets.delete(name, self._store.objects.is_empty(name), Preconditions())

        self._door.storage(f"delete bucket '{name}'", "storage.buckets.delete", act)


def bucket_of(bucket: model.Bucket) -> Bucket:
    """Return our value for a bucket of the model."""
    access = bucket.fields.get("iamConfiguration", {})
    return Bucket(
        name=bucket.name,
        location=bucket.location.lower(),
        labels=dict(bucket.fields.get("labels", {})),
        soft_delete_seconds=int(bucket.fields["softDeletePolicy"]["retentionDurationSeconds"]),
        uniform_access=bool(access.get("uniformBucketLevelAccess", {}).get("enabled")),
        public_access_prevented=access.get("publicAccessPrevention") == "enforced",
    )
