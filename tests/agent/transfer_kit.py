"""A bucket of the lab that takes parts, and answers that are not what they should be."""

import random
import threading
from collections import Counter

from orchestrator.agent.cloud import storage, transfers
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.agent.agent_lab import AgentLab

PLACE = "bucket-for-parts"
PART = 4096
DATA = random.Random(3).randbytes(10 * PART + 123)
NAME = "checkpoints/00000010/g1/w0/model.bin"


def small_parts(monkeypatch) -> None:
    """Let a file of some kilobytes be a large one."""
    monkeypatch.setattr(storage, "LARGE", PART)
    monkeypatch.setattr(transfers, "SMALLEST_PART", PART)
    monkeypatch.setattr(transfers, "MAX_PART", PART)
    monkeypatch.setattr(transfers, "CLEAN_UP_TIMEOUT", 3.0)


def a_bucket(lab: AgentLab) -> JobBucket:
    """Return the agent's client of a bucket that deletes for good, as `up` makes it."""
    retained = {"retentionDurationSeconds": "0"}
    lab.storage.buckets.create("p", {"name": PLACE, "softDeletePolicy": retained})
    return JobBucket.from_environ(PLACE, {"STORAGE_EMULATOR_HOST": lab.url}, Metadata(lab.metadata.address))


def held(lab: AgentLab, name: str = NAME) -> bytes | None:
    """Return what the bucket holds under a name, None for nothing."""
    return lab.storage.objects.read(lab.storage.objects.get(PLACE, name)) if name in names(lab) else None


def names(lab: AgentLab) -> list[str]:
    """Return the names of all objects in the bucket."""
    return sorted(one.name for one in lab.storage.objects.all() if one.bucket == PLACE)


def put(lab: AgentLab, data: bytes, name: str = NAME) -> None:
    """Store an object past the agent."""
    with lab.storage.lock:
        lab.storage.objects.insert(PLACE, name, data, {}, Preconditions())


def kind(request: Request) -> str:
    """Return what a request does to the bucket, in a word."""
    if request.path.endswith("/compose"):
        return "compose"
    if request.method == "GET":
        media = "range" if request.query.get("alt") == "media" else "stat"
        return "list" if "prefix" in request.query else media
    return {"POST": "part", "DELETE": "delete"}.get(request.method, request.method)


def answering(lab: AgentLab, change) -> "Counter[str]":
    """Let *change* answer (request, its kind, which of its kind, the true answer); return the count of each."""
    observed: Counter[str] = Counter()
    answer, lock = lab.answer, threading.Lock()

    def answered(router: Router, request: Request) -> Response:
        with lock:
            observed[kind(request)] += 1
            number = observed[kind(request)]
        return change(request, kind(request), number, lambda one=request: answer(router, one))

    lab.answer = answered
    return observed


def body(answer: Response) -> bytes:
    """Return the bytes of an answer."""
    return answer.body if answer.source is None else b"".join(answer.source)
