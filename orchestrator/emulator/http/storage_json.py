"""Serve the JSON API of Cloud Storage."""

from collections.abc import Callable, Mapping

from orchestrator.emulator.http.batch import answer_batch
from orchestrator.emulator.http.error_bodies import error_response
from orchestrator.emulator.http.router import Handler, Request, Response, Router
from orchestrator.emulator.http.storage_access import Accounts, StorageAccess, nobody
from orchestrator.emulator.http.storage_objects import ObjectRequests
from orchestrator.emulator.http.storage_shapes import answering, body_of, bucket_json, preconditions
from orchestrator.emulator.http.storage_uploads import UploadRequests
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import location_type

_B = "/storage/v1/b"
_O = "/storage/v1/b/{bucket}/o"
_TO = "/b/{to_bucket}/o/{to_name}"
# Clients differ in the path at which they start a resumable upload.
_UPLOADS = ("/upload/storage/v1/b/{bucket}/o", "/resumable/upload/storage/v1/b/{bucket}/o")
Dispatch = Callable[[Request], Response]


def storage_routes(
    router: Router, storage: Storage, dispatch: Dispatch | None = None, accounts: Accounts = nobody
) -> None:
    """
    Register the JSON API; each handler's `__name__` is its method, such as `storage.objects.insert`.

    *dispatch* answers the requests inside a batch; by default they go straight to *router*. *accounts*
    returns the accounts of a request.
    """
    buckets, objects = BucketRequests(storage, accounts), ObjectRequests(storage, accounts)
    uploads = UploadRequests(storage, accounts)

    def batch(request: Request) -> Response:
        return answer_batch(request, dispatch or (lambda inner: route(router, inner)))

    table: list[tuple[str, str, str, Handler]] = [
        ("storage.buckets.insert", "POST", _B, buckets.insert),
        ("storage.buckets.list", "GET", _B, buckets.list),
        ("storage.buckets.get", "GET", _B + "/{bucket}", buckets.get),
        ("storage.buckets.patch", "PATCH", _B + "/{bucket}", buckets.patch),
        ("storage.buckets.delete", "DELETE", _B + "/{bucket}", buckets.delete),
        ("storage.buckets.getIamPolicy", "GET", _B + "/{bucket}/iam", buckets.get_policy),
        ("storage.buckets.setIamPolicy", "PUT", _B + "/{bucket}/iam", buckets.set_policy),
        ("storage.buckets.getStorageLayout", "GET", _B + "/{bucket}/storageLayout", buckets.layout),
        ("storage.managedFolders.list", "GET", _B + "/{bucket}/managedFolders", buckets.managed_folders),
        ("storage.objects.list", "GET", _O, objects.list),
        ("storage.objects.get", "GET", _O + "/{name}", objects.get),
        ("storage.objects.get", "GET", "/download" + _O + "/{name}", objects.media),
        ("storage.objects.patch", "PATCH", _O + "/{name}", objects.patch),
        ("storage.objects.delete", "DELETE", _O + "/{name}", objects.delete),
        ("storage.objects.compose", "POST", _O + "/{name}/compose", objects.compose),
        ("storage.objects.copy", "POST", _O + "/{name}/copyTo" + _TO, objects.copy),
        ("storage.objects.rewrite", "POST", _O + "/{name}/rewriteTo" + _TO, objects.rewrite),
        ("storage.objects.move", "POST", _O + "/{name}/moveTo/o/{to_name}", objects.move),
        ("storage.batch", "POST", "/batch/storage/v1", batch),
    ]
    for path in _UPLOADS:
        table.append(("storage.objects.insert", "POST", path, uploads.insert))
        table.append(("storage.objects.insert", "PUT", path, uploads.chunk))
        table.append(("storage.objects.insert", "DELETE", path, uploads.cancel))
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, answering(method, storage, handler, _refused))


def _refused(request: Request, error: StorageError, _: Mapping[str, str]) -> Response:
    return error_response(request, error)


def route(router: Router, request: Request) -> Response:
    """Answer a request by the router; an unknown path is a 404 in the JSON form."""
    found = router.find(request)
    if found is None:
        text = f"Not served: {request.method} {request.path}"
        return error_response(request, StorageError(404, "notFound", text))
    handler, values = found
    return handler(request, **values)


class BucketRequests:
    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage = storage
        self._access = StorageAccess(storage, accounts)
        self._buckets = storage.buckets

    def insert(self, request: Request) -> Response:
        return Response.of(bucket_json(self._buckets.create(_project(request), body_of(request.body))))

    def list(self, request: Request) -> Response:
        found = self._buckets.list(_project(request), request.query.get("prefix", ""))
        answer: dict[str, object] = {"kind": "storage#buckets"}
        if found:
            answer["items"] = [bucket_json(bucket) for bucket in found]
        return Response.of(answer)

    def get(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.buckets.get")
        held = self._buckets.get(bucket)
        preconditions(request.query).check_read(held.generation, held.metageneration)
        return Response.of(bucket_json(held))

    def patch(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.buckets.update")
        asked = preconditions(request.query)
        return Response.of(bucket_json(self._buckets.patch(bucket, body_of(request.body), asked)))

    def delete(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.buckets.delete")
        empty = self._storage.objects.is_empty(bucket)
        self._buckets.delete(bucket, empty, preconditions(request.query))
        return Response(204)

    def get_policy(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.buckets.getIamPolicy")
        return Response.of(self._buckets.policy(bucket))

    def set_policy(self, request: Request, bucket: str) -> Response:
        self._access.admit(request, bucket, "storage.buckets.setIamPolicy")
        return Response.of(self._buckets.set_policy(bucket, body_of(request.body)))

    def layout(self, _request: Request, bucket: str) -> Response:
        """Return the storage layout, always with a flat namespace."""
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
        """Return an empty list of managed folders, which `gcloud storage rm -r gs://BUCKET` requests."""
        self._buckets.get(bucket)
        return Response.of({"kind": "storage#managedFolders"})


def _project(request: Request) -> str:
    if not request.query.get("project"):
        raise StorageError(400, "required", "Required parameter: project")
    return request.query["project"]
