"""Requests about buckets and their IAM policies."""

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_access import Accounts, Door, nobody
from orchestrator.emulator.http.storage_shapes import body_of, bucket_json, preconditions
from orchestrator.emulator.state.storage.errors import StorageError
from orchestrator.emulator.state.storage.names import location_type
from orchestrator.emulator.state.storage.service import Storage


class BucketRequests:
    """Answer each bucket method of the JSON API."""

    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage = storage
        self._door = Door(storage, accounts)
        self._buckets = storage.buckets

    def insert(self, request: Request) -> Response:
        """Create a bucket in the project that the query names."""
        return Response.of(bucket_json(self._buckets.create(_project(request), body_of(request.body))))

    def list(self, request: Request) -> Response:
        """Return the project's buckets, all on one page."""
        found = self._buckets.list(_project(request), request.query.get("prefix", ""))
        answer: dict[str, object] = {"kind": "storage#buckets"}
        if found:
            answer["items"] = [bucket_json(bucket) for bucket in found]
        return Response.of(answer)

    def get(self, request: Request, bucket: str) -> Response:
        """Return the bucket resource."""
        self._door.admit(request, bucket, "storage.buckets.get")
        held = self._buckets.get(bucket)
        preconditions(request.query).check_read(held.generation, held.metageneration)
        return Response.of(bucket_json(held))

    def patch(self, request: Request, bucket: str) -> Response:
        """Merge the body into the bucket."""
        self._door.admit(request, bucket, "storage.buckets.update")
        asked = preconditions(request.query)
        return Response.of(bucket_json(self._buckets.patch(bucket, body_of(request.body), asked)))

    def delete(self, request: Request, bucket: str) -> Response:
        """Delete an empty bucket."""
        self._door.admit(request, bucket, "storage.buckets.delete")
        empty = self._storage.objects.is_empty(bucket)
        self._buckets.delete(bucket, empty, preconditions(request.query))
        return Response(204)

    def get_policy(self, request: Request, bucket: str) -> Response:
        """Return the IAM policy."""
        self._door.admit(request, bucket, "storage.buckets.getIamPolicy")
        return Response.of(self._buckets.policy(bucket))

    def set_policy(self, request: Request, bucket: str) -> Response:
        """Replace the IAM policy."""
        self._door.admit(request, bucket, "storage.buckets.setIamPolicy")
        return Response.of(self._buckets.set_policy(bucket, body_of(request.body)))

    def layout(self, _request: Request, bucket: str) -> Response:
        """Return the storage layout: a flat namespace always."""
        held = self._buckets.get(bucket)
        return Response.of(
            {
                "kind": "storage#storageLayout",
                "bucket": bucket,
                "location": held.location,
                "locationType": location_type(held.location),
                "hierarchicalNamespace": {"enabled": False},
            }
        )

    def managed_folders(self, _request: Request, bucket: str) -> Response:
        """List no managed folders, for `gcloud storage rm -r gs://BUCKET`, which asks."""
        self._buckets.get(bucket)
        return Response.of({"kind": "storage#managedFolders"})


def _project(request: Request) -> str:
    if not request.query.get("project"):
        raise StorageError(400, "required", "Required parameter: project")
    return request.query["project"]
