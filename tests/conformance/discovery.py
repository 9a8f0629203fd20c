"""
Hold requests and answers against Google's discovery documents, as google-api-python-client brings them.

The documents are read when they are first needed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestrator.emulator.http.router import Request, Response

SERVICES = ("tpu.v2", "tpu.v2alpha1", "compute.v1", "storage.v1", "secretmanager.v1")
INSTALLED = find_spec("googleapiclient") is not None
# Query parameters of every Google API (docs.cloud.google.com/apis/docs/system-parameters), and of uploads.
SYSTEM = frozenset({
    "$alt", "alt", "fields", "key", "prettyPrint", "quotaUser", "userIp", "uploadType", "upload_protocol",
    "upload_id", "$.xgafv",
})  # fmt: skip
# gcloud 528 sends it to aggregated lists of Compute; the document of 2026-11 has it for other calls only.
BESIDE = frozenset({"returnPartialSuccess"})
# Chunks of uploads go to the address of their session, which no document describes; batches hold requests.
UNLISTED = re.compile(r"^(PUT|DELETE) (/resumable)?/upload/|^POST /resumable/|^POST /batch/|^GET /_local")
PLAIN = {"string": str, "boolean": bool, "object": dict, "array": list}
FORMATS = {
    "int64": r"-?\d+",
    "uint64": r"\d+",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)",
    "google-duration": r"\d+(\.\d{1,9})?s",
}


@dataclass(frozen=True)
class Method:
    """One method of one document; *kind* is plain, upload or download."""

    document: Mapping[str, Any]
    body: Mapping[str, Any]
    kind: str
    path: re.Pattern[str]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    def schema(self, side: str) -> Mapping[str, Any] | None:
        """Return the schema of `request` or `response`."""
        return self.body.get(side)


@cache
def document(service: str) -> dict[str, Any]:
    """Return the discovery document of *service*."""
    spec = find_spec("googleapiclient")
    folder = Path(str(spec and spec.origin)).parent / "discovery_cache/documents"
    found: dict[str, Any] = json.loads((folder / f"{service}.json").read_text())
    return found


@cache
def methods() -> tuple[tuple[str, Method], ...]:
    """Return every method with its verb; paths with fewer variables come first."""
    found = [
        (len(re.findall(r"\(\?P|\[\^", method.path.pattern)), verb, method)
        for service in SERVICES
        for verb, method in _methods(document(service))
    ]
    return tuple((verb, method) for _, verb, method in sorted(found, key=lambda row: row[0]))


def _methods(known: dict[str, Any]) -> Iterator[tuple[str, Method]]:
    base = "/" + known["servicePath"]
    for body in _bodies(known):
        path = body.get("flatPath", body["path"])
        yield body["httpMethod"], Method(known, body, "plain", _pattern(base + path))
        if body.get("supportsMediaUpload"):
            for protocol in body["mediaUpload"]["protocols"].values():
                yield body["httpMethod"], Method(known, body, "upload", _pattern(protocol["path"]))
        if body.get("useMediaDownloadService"):
            yield body["httpMethod"], Method(known, body, "download", _pattern("/download" + base + path))


def _bodies(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _bodies(inner)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(
        "".join("[^/]+?" if part[:1] == "{" else re.escape(part) for part in _PARTS.split(path))
    )


_PARTS = re.compile(r"(\{\+?[^}]+\})")


@cache
def method_of(verb: str, path: str) -> Method | None:
    """Return the method that a request calls, or None."""
    return next((one for at, one in methods() if at == verb and one.path.fullmatch(path)), None)


def faults(request: Request, response: Response) -> list[str]:
    """Return what in the exchange is not as Google's documents say, one text each."""
    if UNLISTED.match(f"{request.method} {request.path}"):
        return []
    method = method_of(request.method, request.path)
    if method is None:
        # Not a fault where the local cloud says so too.
        return [] if response.status in (404, 501) else [f"no such method: {request.method} {request.path}"]
    check = _Check(method)
    check.query(request.query)
    if response.status < 400:
        # What is refused may well be wrong: tests send it on purpose.
        check.request(request)
    check.response(request, response)
    return check.found


@dataclass
class _Check:
    method: Method
    found: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.found.append(f"{self.method.id}: {text}")

    def query(self, query: Mapping[str, str]) -> None:
        """Look at the parameters of the query."""
        known = {**self.method.document.get("parameters", {}), **self.method.body.get("parameters", {})}
        for name, value in query.items():
            if name not in known and name not in SYSTEM | BESIDE:
                self.say(f"query {name}")
            elif name in known and "enum" in known[name] and value not in known[name]["enum"]:
                self.say(f"query {name}={value}")

    def request(self, request: Request) -> None:
        """Look at the body of a request that was taken."""
        if self.method.kind == "plain" and request.body.strip() not in (b"", b"null", b"{}"):
            schema = self.method.schema("request")
            if schema is None:
                self.say("a body, where the method has none")
            else:
                self.value(schema, _json(request.body), "request")

    def response(self, request: Request, response: Response) -> None:
        """Look at the answer."""
        if self.method.kind == "download" or request.query.get("alt") == "media" or not response.body:
            return
        answer = _json(response.body)
        if response.status >= 400:
            error = answer.get("error") if isinstance(answer, dict) else None
            if not isinstance(error, dict) or error.get("code") != response.status or "message" not in error:
                self.say(f"an error of another form: {response.body[:100]!r}")
            return
        schema = self.method.schema("response")
        if schema is not None:
            self.value(schema, answer, "answer")
        elif answer:
            self.say("an answer, where the method has none")

    def value(self, schema: Mapping[str, Any], value: Any, at: str) -> None:
        """Look at one value and at all below it; unknown fields are faults."""
        if "$ref" in schema:
            schema = self.method.document["schemas"][schema["$ref"]]
        kind = schema.get("type", "any")
        if kind == "any" or value is None:
            if value is None and at.startswith("answer"):
                self.say(f"{at} is null")
            return
        if "enum" in schema:
            if value not in schema["enum"] and not (isinstance(value, int) and at.startswith("request")):
                self.say(f"{at} is {value!r}, which is no value of its enum")
        elif not _fits(schema, kind, str(value) if _taken_as_text(schema, value, at) else value):
            self.say(f"{at} is {value!r:.60}, which is no {schema.get('format') or kind}")
        elif kind == "array":
            for item in value:
                self.value(schema["items"], item, f"{at}[]")
        elif kind == "object":
            self.fields(schema, value, at)

    def fields(self, schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> None:
        """Look at the fields of an object, and at what an Any of this API carries."""
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inner = known.get(name, others)
            if inner is None:
                self.say(f"{at}.{name} is unknown")
            else:
                self.value(inner, item, f"{at}.{name}")
        packed = str(value.get("@type", "")).rpartition(".")[2]
        if packed in self.method.document["schemas"]:
            self.value({"$ref": packed}, {k: v for k, v in value.items() if k != "@type"}, f"{at}<{packed}>")


def _fits(schema: Mapping[str, Any], kind: str, value: Any) -> bool:
    if kind in ("integer", "number"):
        exact = schema.get("format") in ("int32", "uint32") or kind == "number"
        return isinstance(value, int | float if exact else int | str) and not isinstance(value, bool)
    if not isinstance(value, PLAIN[kind]):
        return False
    pattern = FORMATS.get(schema.get("format", "")) if kind == "string" else None
    return pattern is None or re.fullmatch(pattern, value) is not None


def _taken_as_text(schema: Mapping[str, Any], value: Any, at: str) -> bool:
    """Return whether *value* is a number in a request, where a number of 64 bit is asked for as text."""
    long = schema.get("format") in ("int64", "uint64")
    return long and at.startswith("request") and isinstance(value, int) and not isinstance(value, bool)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return {"not JSON": data[:60].decode("latin-1")}


class Witness:
    """Hold what the exchanges showed: how many of each method, and the faults."""

    def __init__(self) -> None:
        self.met: dict[str, int] = {}
        self.faults: dict[str, str] = {}
        self._judged: dict[tuple[object, ...], list[str]] = {}

    def observe(self, request: Request, response: Response) -> Response:
        """Judge one exchange and return its answer."""
        if INSTALLED:
            method = method_of(request.method, request.path)
            name = method.id if method else ""
            self.met[name] = self.met.get(name, 0) + 1
            for text in self._faults(request, response):
                self.faults.setdefault(text, f"{request.method} {request.path} -> {response.status}")
        return response

    def _faults(self, request: Request, response: Response) -> list[str]:
        """Return the faults of an exchange; one that is repeated, as a loop does, is judged once."""
        key = (
            request.method,
            request.path,
            *request.query.items(),
            request.body,
            response.status,
            response.body,
        )
        if key not in self._judged:
            self._judged[key] = faults(request, response)
        return self._judged[key]
