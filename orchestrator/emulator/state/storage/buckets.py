"""Model buckets and their IAM policies."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.clock import Clock
from orchestrator.emulator.state.storage import stored
from orchestrator.emulator.state.storage.blobs import Blobs
from orchestrator.emulator.state.storage.bucket_policy import check_policy
from orchestrator.emulator.state.storage.refusals import invalid, known, no_access
from orchestrator.emulator.state.storage.stored import (
    Bucket,
    Fields,
    Preconditions,
    etag,
    merged,
    rfc3339,
    without_nulls,
)

# Stored separately or computed; ignored here because gcloud's PATCH sends whole resources.
_NO_FIELDS = frozenset({
    "name", "location", "project", "kind", "id", "selfLink", "timeCreated", "updated", "generation",
    "metageneration", "etag", "projectNumber", "locationType", "owner", "satisfiesPZI", "satisfiesPZS",
    "softDeleteTime", "hardDeleteTime",
})  # fmt: skip
_NOT_MODELLED = ("retentionPolicy", "objectRetention", "autoclass", "hierarchicalNamespace")
_SOFT_DELETE_SECONDS = str(7 * 24 * 3600)  # the default of new buckets (docs/facts.md 3.2)


class Buckets:
    """
    The buckets of all projects, in one namespace.

    *taken* are names of other owners: creating one is 409, accessing one is 403. A changed policy applies
    *policy_delay* seconds later, everywhere at once; at Google each server learns of it separately.
    """

    def __init__(
        self,
        clock: Clock,
        blobs: Blobs,
        next_generation: Callable[[], int],
        taken: Collection[str],
        policy_delay: float = 0.0,
    ) -> None:
        self._clock = clock
        self._blobs = blobs
        self._next_generation = next_generation
        self.policy_delay = policy_delay
        self.taken = set(taken)
        self._buckets = {r["name"]: Bucket(**r) for r in blobs.records("bucket")}

    def create(self, project: str, body: Mapping[str, Any]) -> Bucket:
        """Create a bucket. Raise 409 if the name is taken, by us or by others."""
        wanted = without_nulls(body)
        name = stored.check_bucket_name(wanted.get("name"))
        held = self._buckets.get(name)
        if name in self.taken or (held and held.project != project):
            raise known("bucket name taken")
        if held:
            raise known("bucket owned by you")
        location = stored.check_location(wanted.get("location"))
        now = self._clock.now()
        fields = self._settled({k: v for k, v in wanted.items() if k not in _NO_FIELDS}, now)
        return self._keep(Bucket(name, project, location, now, now, self._next_generation(), fields=fields))

    def get(self, name: str, permission: str = "storage.buckets.get") -> Bucket:
        """Return the bucket. Raise 404 if there is none, 403 if it is another owner's."""
        if name in self.taken:
            raise no_access(permission)
        if name not in self._buckets:
            raise known("bucket missing")
        return self._buckets[name]

    def list(self, project: str, prefix: str = "") -> "list[Bucket]":
        """Return the project's buckets, sorted by name."""
        held = (self._buckets[name] for name in sorted(self._buckets))
        return [b for b in held if b.project == project and b.name.startswith(prefix)]

    def patch(self, name: str, body: Mapping[str, Any], asked: Preconditions) -> Bucket:
        """Merge *body* into the bucket's fields. Raise 400 for a new location, which cannot change."""
        bucket = self.get(name, "storage.buckets.update")
        asked.check_write(bucket.generation, bucket.metageneration)
        location = body.get("location")
        if location is not None and str(location).upper() != bucket.location:
            raise invalid("The location of a bucket cannot be changed.")
        change = {key: value for key, value in body.items() if key not in _NO_FIELDS}
        now = self._clock.now()
        fields = self._settled(merged(bucket.fields, change), now)
        newer = replace(bucket, fields=fields, updated=now, metageneration=bucket.metageneration + 1)
        return self._keep(newer)

    def delete(self, name: str, empty: bool, asked: Preconditions) -> None:
        """Delete the bucket. Raise 409 unless it is *empty*."""
        bucket = self.get(name, "storage.buckets.delete")
        asked.check_write(bucket.generation, bucket.metageneration)
        if not empty:
            raise known("bucket not empty")
        self._blobs.forget("bucket", name)
        del self._buckets[name]

    def policy(self, name: str) -> Fields:
        """
        Return the IAM policy.

        A new bucket's policy is empty here; a real one may start with bindings for the project's owners.
        """
        bucket = self.get(name, "storage.buckets.getIamPolicy")
        return {
            "kind": "storage#policy",
            "resourceId": f"projects/_/buckets/{name}",
            "version": bucket.policy.get("version", 1),
            "etag": etag(bucket.generation, bucket.policy_version),
            "bindings": bucket.policy.get("bindings", []),
        }

    def set_policy(self, name: str, body: Mapping[str, Any]) -> Fields:
        """
        Replace the IAM policy. Raise 412 if the given etag is not the newest.

        That a stale etag is refused is documented; the status 412 is not verified.
        """
        bucket = self.get(name, "storage.buckets.setIamPolicy")
        wanted = without_nulls(body)
        if wanted.get("etag", "") not in ("", self.policy(name)["etag"]):
            raise known("precondition")
        policy: Fields = {key: wanted[key] for key in ("version", "bindings") if key in wanted}
        uniform = bucket.fields.get("iamConfiguration", {}).get("uniformBucketLevelAccess", {})
        check_policy(policy, uniform=bool(uniform.get("enabled")))
        version, now = bucket.policy_version + 1, self._clock.now()
        before = [*bucket.policies, {"since": bucket.policy_since, "policy": bucket.policy}]
        late = [one for one in before if one["since"] > now - self.policy_delay]
        earlier = before[-len(late) - 1 :] if self.policy_delay else []
        changed = replace(bucket, policy=policy, policy_version=version, policy_since=now, policies=earlier)
        self._keep(changed)
        return self.policy(name)

    def in_force(self, bucket: Bucket) -> Fields:
        """Return the policy that applies now, which a newer one may not have replaced yet."""
        settled = self._clock.now() - self.policy_delay
        if not bucket.policies or bucket.policy_since <= settled:
            return bucket.policy
        return next((one["policy"] for one in reversed(bucket.policies) if one["since"] <= settled), {})

    def _settled(self, fields: Fields, now: float) -> Fields:
        """Complete fields that Cloud Storage sets itself. Raise 400 for what is not modelled."""
        for key in ("versioning", "softDeletePolicy", "labels", "lifecycle", "iamConfiguration"):
            if not isinstance(fields.get(key, {}), dict):
                raise invalid(f"{key} must be an object.")
        if fields.get("versioning", {}).get("enabled"):
            raise invalid("The local cloud keeps no old object versions: leave versioning off.")
        for key in _NOT_MODELLED:
            if (
                fields.get(key, {}).get("enabled", True)
                if isinstance(fields.get(key), dict)
                else key in fields
            ):
                raise invalid(f"The local cloud does not implement {key}: leave it out.")
        soft = fields.get("softDeletePolicy", {})
        seconds = str(soft.get("retentionDurationSeconds", _SOFT_DELETE_SECONDS))
        since = soft.get("effectiveTime", rfc3339(now))
        policy = {"retentionDurationSeconds": seconds, "effectiveTime": since}
        storage_class = str(fields.get("storageClass", "STANDARD")).upper()
        return {**fields, "storageClass": storage_class, "softDeletePolicy": policy}

    def _keep(self, bucket: Bucket) -> Bucket:
        self._blobs.save("bucket", bucket.name, bucket.as_record())
        self._buckets[bucket.name] = bucket
        return bucket
