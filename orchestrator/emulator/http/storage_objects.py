"""Requests about objects, other than moving their bytes."""

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_access import Accounts, Door, nobody
from orchestrator.emulator.http.storage_media import download
from orchestrator.emulator.http.storage_shapes import (
    base_of,
    body_of,
    boolean,
    check_etags,
    list_query,
    number,
    object_json,
    preconditions,
)
from orchestrator.emulator.state.storage.errors import invalid
from orchestrator.emulator.state.storage.objects import Source
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.values import Preconditions, etag, without_nulls


class ObjectRequests:
    """Answer each object method of the JSON API, and the read of the XML API."""

    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._objects = storage.objects
        self._door = Door(storage, accounts)

    def list(self, request: Request, bucket: str) -> Response:
        """Return one page of objects and prefixes; soft-deleted objects are not kept, so none is listed."""
        self._door.admit(request, bucket, "storage.objects.list")
        answer: dict[str, object] = {"kind": "storage#objects"}
        if boolean(request.query, "softDeleted"):
            return Response.of(answer)
        found, page = self._objects.page(bucket, list_query(request.query))
        if found:
            answer["items"] = [object_json(held, base_of(request)) for held in found]
        if page.prefixes:
            answer["prefixes"] = list(page.prefixes)
        if page.next_token:
            answer["nextPageToken"] = page.next_token
        return Response.of(answer)

    def get(self, request: Request, bucket: str, name: str) -> Response:
        """Return the object resource, or its bytes for alt=media."""
        if request.query.get("alt") == "media":
            return self.media(request, bucket, name)
        self._door.admit(request, bucket, "storage.objects.get", name)
        held = self._objects.get(bucket, name, number(request.query, "generation"))
        preconditions(request.query).check_read(held.generation, held.metageneration)
        check_etags(request.headers, etag(held.generation, held.metageneration))
        return Response.of(object_json(held, base_of(request)))

    def media(self, request: Request, bucket: str, name: str) -> Response:
        """Return the object's bytes, or the range that was asked for."""
        self._door.admit(request, bucket, "storage.objects.get", name)
        held = self._objects.get(bucket, name, number(request.query, "generation"))
        preconditions(request.query).check_read(held.generation, held.metageneration)
        check_etags(request.headers, etag(held.generation, held.metageneration))
        return download(self._objects, held, request)

    def patch(self, request: Request, bucket: str, name: str) -> Response:
        """Merge the body into the object's metadata."""
        self._door.admit(request, bucket, "storage.objects.update", name)
        self._objects.get(bucket, name, number(request.query, "generation"))
        asked = preconditions(request.query)
        return Response.of(
            object_json(self._objects.patch(bucket, name, body_of(request.body), asked), base_of(request))
        )

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        """Delete the object."""
        self._door.admit(request, bucket, "storage.objects.delete", name)
        generation = number(request.query, "generation")
        self._objects.delete(bucket, name, generation, preconditions(request.query))
        return Response(204)

    def compose(self, request: Request, bucket: str, name: str) -> Response:
        """Join objects of one bucket."""
        self._door.admit_write(request, bucket, name)
        body = without_nulls(body_of(request.body))
        parts = body.get("sourceObjects", [])
        if not isinstance(parts, list) or not isinstance(body.get("destination", {}), dict):
            raise invalid("sourceObjects must be a list, and destination an object.")
        sources = [_component(bucket, part) for part in parts]
        asked = preconditions(request.query)
        made = self._objects.compose(sources, bucket, name, body.get("destination", {}), asked)
        return Response.of(object_json(made, base_of(request)))

    def copy(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        """Copy an object and return the copy."""
        self._door.admit(request, bucket, "storage.objects.get", name)
        self._door.admit_write(request, to_bucket, to_name)
        generation = number(request.query, "sourceGeneration")
        source = Source(bucket, name, generation, preconditions(request.query, "Source"))
        asked = preconditions(request.query)
        made = self._objects.copy(source, to_bucket, to_name, body_of(request.body), asked)
        return Response.of(object_json(made, base_of(request)))

    def rewrite(self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str) -> Response:
        """Copy an object within one call, whatever its size."""
        resource = self.copy(request, bucket, name, to_bucket, to_name)
        made = self._objects.get(to_bucket, to_name)
        size = str(made.size)
        done = {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": size,
            "objectSize": size,
            "done": True,
        }
        return Response.of({**done, "resource": object_json(made, base_of(request))}, resource.status)

    def move(self, request: Request, bucket: str, name: str, to_name: str) -> Response:
        """
        Rename an object within its bucket, for gcsfs: nobody sees both names or neither.

        A kill halfway may leave both names, which the real service does not.
        """
        self._door.admit(request, bucket, "storage.objects.delete", name)
        answer = self.copy(request, bucket, name, bucket, to_name)
        if to_name != name:
            self._objects.delete(bucket, name, None, Preconditions())
        return answer


def _component(bucket: str, part: object) -> Source:
    """Read one source of a composition; an explicit null generation means the newest."""
    if not isinstance(part, dict):
        raise invalid("Each of sourceObjects must be an object with a name.")
    match = part.get("objectPreconditions") or {}
    if not isinstance(match, dict):
        raise invalid("objectPreconditions must be an object.")
    asked = Preconditions(_integer(match.get("ifGenerationMatch")))
    return Source(bucket, str(part.get("name", "")), _integer(part.get("generation")), asked)


def _integer(value: object) -> int | None:
    if value is None:
        return None
    if not str(value).isdecimal():
        raise invalid(f"Not a generation: {value}")
    return int(str(value))
