"""
Record a self-test: which calls in which stage, with which shapes, and how long they took.

Recording is by allow-list: everything not known to be harmless becomes a placeholder. Kept are field names,
types, values of known enumerations, status codes, and the words of error texts. Names, numbers, addresses,
tokens, keys, scripts and the values of all other fields never pass.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1
_STORED = {"duration_s": "seconds", "result": "outcome"}
"""Facts about a stage that have another key in the file, which also calls a stage a step."""


@dataclass
class RecordedCall:
    """
    Collect all exchanges of one stage with one call and one status.

    *first* maps a value of an enumeration to the seconds in the stage after which it was first answered.
    """

    count: int = 0
    query: set[str] = field(default_factory=set)
    asked: dict[str, set[str]] = field(default_factory=dict)
    answered: dict[str, set[str]] = field(default_factory=dict)
    errors: set[str] = field(default_factory=set)
    first: dict[str, float] = field(default_factory=dict)
    longest_ms: int = 0


@dataclass
class Recording:
    """A whole run: *head* says what ran where, *stages* how each stage ended, *machines* the machines' facts."""

    head: dict[str, Any]
    entries: dict[tuple[str, str, int], RecordedCall] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, dict[str, str]] = field(default_factory=dict)

    def lines(self) -> list[dict[str, Any]]:
        """Return the recording as the JSON lines of its file."""
        found: list[dict[str, Any]] = [{"schema": SCHEMA, **self.head}]
        found += [{"step": name, **_renamed(stage, _STORED)} for name, stage in self.stages.items()]
        found += [{"machine": name, "facts": facts} for name, facts in self.machines.items()]
        for (stage, call, status), one in self.entries.items():
            found.append(
                {
                    "step": stage, "call": call, "status": status, "count": one.count,
                    "query": sorted(one.query), "ask": _sorted(one.asked), "answer": _sorted(one.answered),
                    "errors": sorted(one.errors), "first": one.first, "longest_ms": one.longest_ms,
                }
            )  # fmt: skip
        return found


def parse(lines: Iterable[Mapping[str, Any]]) -> Recording:
    """Parse a file's lines; raise ValueError if they are no valid recording."""
    head, *rest = [dict(line) for line in lines] or [{}]
    if head.pop("schema", None) != SCHEMA:
        raise ValueError(f'its first line does not say "schema": {SCHEMA}')
    found = Recording(head)
    for line in rest:
        if "call" in line:
            entry = RecordedCall(
                int(line["count"]), set(line["query"]), _sets(line["ask"]), _sets(line["answer"]),
                set(line["errors"]), dict(line["first"]), int(line["longest_ms"]),
            )  # fmt: skip
            found.entries[str(line["step"]), str(line["call"]), int(line["status"])] = entry
        elif "machine" in line:
            found.machines[str(line["machine"])] = dict(line["facts"])
        else:
            name = str(line.pop("step"))
            found.stages[name] = _renamed(line, {key: field for field, key in _STORED.items()})
    return found


def _renamed(stage: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in stage.items()}


def merge(into: dict[str, set[str]], shape: Mapping[str, Iterable[str]]) -> None:
    """Add a shape to those observed before."""
    for path, kinds in shape.items():
        into.setdefault(path, set()).update(kinds)


def _sorted(shape: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    return {path: sorted(kinds) for path, kinds in sorted(shape.items())}


def _sets(shape: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    return {path: set(kinds) for path, kinds in shape.items()}


PLACEHOLDER = "<id>"
# Allow-lists, all of them: a missing entry hides a word and never reveals a name.
PATH_WORDS = frozenset({
    "v1", "v2", "v2alpha1", "compute", "storage", "upload", "download", "projects", "zones", "regions",
    "global", "aggregated", "locations", "nodes", "queuedResources", "operations", "instances",
    "disks", "images", "family", "machineTypes", "acceleratorTypes", "runtimeVersions", "b", "o",
    "iam", "testPermissions", "services", "skus", "serviceAccounts", "getGuestAttributes", "start",
    "stop", "wait", "setLabels", "setMetadata", "rewriteTo", "compose", "batch", "folders",
    "secrets", "versions", "access", "addVersion", "getIamPolicy", "setIamPolicy", "networks",
    "subnetworks", "firewalls",
})  # fmt: skip
"""Path segments that belong to an API; every other segment is a private name."""
ENUMS = frozenset({
    "state", "health", "status", "apiVersion", "operationType", "storageClass", "networkTier",
    "provisioningModel", "reason", "domain", "onHostMaintenance", "instanceTerminationAction",
    "location", "publicAccessPrevention", "rpo", "locationType", "type", "protectionTier", "tier",
    "httpErrorMessage",
})  # fmt: skip
"""Fields whose values are words of an API; values that look like such words are kept."""
LOWER = frozenset({"reason", "domain", "operationType", "publicAccessPrevention", "locationType"})
"""Fields whose words are in lower case."""
MAPS = frozenset({"labels", "metadata", "attributes", "annotations", "resourceManagerTags", "consumer"})
"""Fields whose keys are chosen by users; the keys are dropped."""

_FIELD = re.compile(r"@?[a-z][A-Za-z0-9]{0,47}")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*|V\d[A-Z0-9_]*")
_REASON = re.compile(r"[a-z][A-Za-z]{2,40}")
_KIND = re.compile(r"(compute|storage)#[A-Za-z]+")
_TYPE = re.compile(r"type\.googleapis\.com/google\.[a-zA-Z0-9_.]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_WORD = re.compile(r"[A-Za-z][a-z]{0,15}(?:'[a-z]{1,2})?")
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,2})?")
_QUOTA = re.compile(r"[A-Z][A-Za-z0-9]*Per(?:Project|Minute|Region|Zone)[A-Za-z]*|[A-Z][A-Z_]{3,40}")
_API = re.compile(
    r"(?:tpu|compute|storage|iam|cloudbilling|serviceusage|cloudresourcemanager)\.(?:googleapis\.com|[A-Za-z.]+)"
    r"|constraints/[a-z]+\.[A-Za-z]+|roles/[a-z]+\.[A-Za-z]+"
)
_SPLIT = re.compile(r"([^\w.'/<>@:+-]+)")


@dataclass(frozen=True)
class RecordingRedactor:
    """
    Replace private names by placeholders, and keep the public words of the catalogue.

    *public* are zones, regions, accelerator types and similar, which are in Google's documentation.
    """

    known: Mapping[str, str] = field(default_factory=dict)
    public: frozenset[str] = frozenset()

    def path(self, path: str) -> str:
        """Return the template of a request's path; only words of the API and public names stay."""
        return "/".join(self._part(part) for part in path.split("/"))

    def _part(self, part: str) -> str:
        name, colon, verb = part.partition(":")
        shown = name if not name or name in PATH_WORDS or name in self.public else "{}"
        return shown + (f":{verb}" if colon and verb in PATH_WORDS else ":{}" if colon else "")

    def text(self, text: str) -> str:
        """Return a message reduced to words of plain English and of the API."""
        # The longest first: a project's name may be part of a bucket's.
        for name in sorted(self.known, key=len, reverse=True):
            if name:
                text = text.replace(name, f"<{self.known[name]}>")
        return "".join(self._word(piece) for piece in _SPLIT.split(text[:2000]))

    def _word(self, piece: str) -> str:
        bare = piece.rstrip(".,:;'/").lstrip("'/")
        if not bare or _SPLIT.fullmatch(piece) or re.fullmatch(r"<[a-z-]+>", bare):
            return piece
        fine = bare in self.public or any(p.fullmatch(bare) for p in (_WORD, _NUMBER, _QUOTA, _API))
        # Words with a dash, a digit or an inner capital are names and go, unless they are in the catalogue.
        return piece if fine else piece.replace(bare, PLACEHOLDER)

    def shape(self, value: Any) -> dict[str, list[str]]:
        """Return the shape of a JSON value: the types, or values of an enumeration, for each path of fields."""
        found: dict[str, set[str]] = {}
        self._walk(value, "", "", found)
        return {path: sorted(kinds) for path, kinds in sorted(found.items())}

    def _walk(self, value: Any, path: str, name: str, found: dict[str, set[str]]) -> None:
        if isinstance(value, dict):
            users = name in MAPS and "@type" not in value
            for key, item in value.items():
                # Keys of labels and metadata are chosen by users as well.
                shown = key if not users and _FIELD.fullmatch(str(key)) else "*"
                self._walk(item, f"{path}.{shown}" if path else shown, shown, found)
            if not value:
                found.setdefault(path or ".", set()).add("object")
        elif isinstance(value, list):
            for item in value:
                self._walk(item, f"{path}[]", name, found)
            if not value:
                found.setdefault(f"{path}[]", set()).add("empty")
        else:
            found.setdefault(path or ".", set()).add(kind_of(value, name))

    def errors(self, body: Any) -> list[str]:
        """Return the lines of an error answer: code, status, reasons, text."""
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict):
            return []
        parts = [f"code {error['code']}"] if isinstance(error.get("code"), int) else []
        parts += [kind_of(error["status"], "status")] if isinstance(error.get("status"), str) else []
        inner = [one for key in ("errors", "details") for one in _dicts(error.get(key))]
        parts += [kind_of(one["reason"], "reason") for one in inner if isinstance(one.get("reason"), str)]
        parts += [self.text(error["message"])] if isinstance(error.get("message"), str) else []
        return parts


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def kind_of(value: Any, name: str) -> str:
    """Return the type of a plain JSON value, or the value itself if it is a word of an enumeration."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    text = str(value)
    for names, pattern in (({"@type"}, _TYPE), ({"kind"}, _KIND), (ENUMS, _CONSTANT), (LOWER, _REASON)):
        if name in names and pattern.fullmatch(text):
            return text
    if _TIME.match(text):
        return "time"
    return "digits" if text.isdigit() else "string"


def placeholders(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the placeholder of each name; shorter names than three letters would garble texts and are left out."""
    return {name: word for word, name in names if len(name) > 2}
