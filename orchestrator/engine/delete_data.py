"""Delete the bucket with its data, or only our folder in it, or return it to its owner."""

from collections.abc import Callable

from orchestrator.clock import wait_until
from orchestrator.contract.bucket.object_names import LEASE, OURS, RECORD
from orchestrator.domain import names
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.observation import Bucket, Present, Unknown
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.leftover import Leftover
from orchestrator.engine.records.record_format import decode
from orchestrator.errors import TpuctlError, TransientError

BUCKET_TIMEOUT = 20.0
"""Seconds to retry the deletion of a bucket with objects that cannot be deleted yet."""


class DataDeletion:
    """Delete the data of one deployment; *close* records that its machines are deleted and returns a leftover."""

    def __init__(self, deployment: Deployment, close: Callable[[], Leftover | None]) -> None:
        self._deployment = deployment
        self._close = close

    def delete(self, name: str) -> Leftover | None:
        """
        Delete the deployment's bucket with its data; return it as a leftover if it stays.

        A bucket without our label stays. An adopted one is deleted only if it was adopted with that setting
        and holds no object of others.
        """
        observed = self._deployment.cloud.buckets.observe(name)
        if isinstance(observed, Unknown):
            return Leftover("bucket", name, "", f"not known: {observed.message}")
        if not isinstance(observed, Present):
            return None
        if self._deployment.spec.bucket.prefix:
            return self._folder(name)
        if (
            self._deployment.spec.bucket.adopt
            or observed.value.labels.get(names.DEPLOYMENT_LABEL) != self._deployment.spec.name
        ):
            return Leftover("bucket", name, observed.value.location, "not made by this deployment, kept")
        if names.is_given_back(observed.value.labels):
            return self._give_back(observed.value)
        foreign = self._foreign_object() if names.ADOPTED_LABEL in observed.value.labels else ""
        if foreign:
            message = f"kept: it was adopted, and {foreign} in it is not of tpuctl"
            return Leftover("bucket", name, observed.value.location, message)
        return self._delete(observed.value)

    def _delete(self, bucket: Bucket) -> Leftover | None:
        """Delete the bucket with all objects."""
        change = Change(Kind.BUCKET, Verb.DELETE, bucket.name, "down --delete-data", bucket.location)
        entry = self._deployment.journal.intend(change, in_bucket=False)
        text = f"Deleting bucket {bucket.name} with all its data"
        self._deployment.sink(Event(self._deployment.clock.now(), EventKind.DELETE, text))
        failure: TpuctlError | None = None

        def deleted() -> bool:
            nonlocal failure
            try:
                self._deployment.cloud.buckets.delete(bucket.name)
            except TransientError as error:
                # Cloud Storage allows one change a second for each object, so an object just
                # written refuses deletion.
                failure = error
                return False
            return True

        try:
            gone = wait_until(deleted, self._deployment.clock, BUCKET_TIMEOUT, 1.0)
        except TpuctlError as error:
            gone, failure = False, error
        if not gone and failure is not None:
            self._deployment.journal.result(entry, f"{failure.code} {failure.message}", in_bucket=False)
            return Leftover("bucket", bucket.name, bucket.location, failure.message)
        self._deployment.journal.result(entry, "ok", in_bucket=False)
        return None

    def _folder(self, bucket: str) -> Leftover | None:
        """Delete our objects in our folder of a shared bucket; return the folder as a leftover if that fails."""
        prefix = names.prefix_of(self._deployment.spec)
        place = f"gs://{bucket}/{prefix}"
        try:
            # The record proves that the folder is ours, so it goes last: a killed `down` can be repeated.
            held = self._deployment.cloud.store.read(RECORD)
            if held is None:
                return None
            decode(held.data, self._deployment.spec.name)
            change = Change(Kind.BUCKET, Verb.DELETE, place, "down --delete-data")
            entry = self._deployment.journal.intend(change, in_bucket=False)
            for ours in OURS:
                self._deployment.cloud.buckets.empty(bucket, prefix + ours, {prefix + RECORD, prefix + LEASE})
            self._deployment.cloud.store.delete(RECORD)
            self._deployment.journal.result(entry, "ok", in_bucket=False)
        except TpuctlError as error:
            return Leftover("data", place, "", error.message)
        return None

    def _give_back(self, bucket: Bucket) -> Leftover | None:
        """Remove our labels and the machines' access from an adopted bucket; leave all objects as they are."""
        # Before the labels go: the next deployment in this bucket starts from a closed record.
        if (unclosed := self._close()) is not None:
            return unclosed
        change = Change(Kind.BUCKET, Verb.UPDATE, bucket.name, "given back", bucket.location)
        entry = self._deployment.journal.intend(change, in_bucket=False)
        try:
            self._deployment.cloud.buckets.remove_labels(
                self._deployment.blueprint.new_bucket(), names.LABELS
            )
        except TpuctlError as error:
            self._deployment.journal.result(entry, f"{error.code} {error.message}", in_bucket=False)
            return Leftover("bucket", bucket.name, bucket.location, f"not given back: {error.message}")
        self._deployment.journal.result(entry, "ok", in_bucket=False)
        self._deployment.sink(
            Event(
                self._deployment.clock.now(),
                EventKind.BUCKET_GIVEN_BACK,
                f"bucket {bucket.name} is given back",
            )
        )
        return None

    def _foreign_object(self) -> str:
        """
        Return a name for the first object that tpuctl did not write, empty if there is none.

        If the bucket cannot be listed, return the reason, so that the bucket is kept.
        """
        try:
            names_there = (one.name for one in self._deployment.cloud.store.list(""))
            return next((f"the object {name!r}" for name in names_there if not name.startswith(OURS)), "")
        # Unknown is not empty: the bucket may hold objects of others, so it stays.
        except TpuctlError as error:
            return f"what cannot be read ({error.message})"
