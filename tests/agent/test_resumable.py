"""Where deleted parts would be billed, a file goes up in one session: over broken connections, and whole."""

import hashlib
import os
from pathlib import Path

import pytest

from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.contract.machine_errors import AgentError, DamagedError, TransientError
from orchestrator.emulator.http.router import Request, Response, Router
from tests.agent.agent_lab import BUCKET, AgentLab

PART = 256 << 10
SIZE = 3 * PART + 1000
DATA = bytes(range(256)) * (SIZE // 256) + b"end" * 400
NAME = "checkpoints/step-1/model.bin"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Let a file of some hundred kilobytes be a large one."""
    monkeypatch.setattr("orchestrator.agent.cloud.storage.PART", PART)
    monkeypatch.setattr("orchestrator.agent.cloud.storage.LARGE", PART)
    monkeypatch.setattr("orchestrator.agent.cloud.transfers.SMALLEST_PART", PART)


def bucket_of(lab: AgentLab) -> JobBucket:
    """Return the agent's client of the lab's bucket, which keeps what is deleted for seven days."""
    return JobBucket.from_environ(BUCKET, {"STORAGE_EMULATOR_HOST": lab.url}, Metadata(lab.metadata.address))


def a_file(folder: Path) -> Path:
    """Return a file of several parts, the last one shorter."""
    path = folder / "model.bin"
    path.write_bytes(DATA)
    return path


def puts(lab: AgentLab) -> list[Request]:
    """Note each part that is sent."""
    observed: list[Request] = []

    def fault(request: Request) -> Response | None:
        if request.method == "PUT":
            observed.append(request)
        return None

    lab.fault = fault
    return observed


def test_a_large_file_goes_up_in_parts(lab: AgentLab, tmp_path: Path) -> None:
    """The bucket holds its bytes, and no request was larger than one part."""
    observed = puts(lab)
    digest = bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert [len(request.body) for request in observed[:-1]] == [PART] * (len(DATA) // PART)
    assert sum(len(request.body) for request in observed) == len(DATA), "each byte was sent once"


@pytest.mark.parametrize("broken", [0, 1, 3], ids=["first", "second", "last"])
@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "answer lost"])
def test_a_part_that_fails_is_sent_again_and_nothing_else(lab, tmp_path, broken, arrives):
    """After a failure the bucket says how much it has, and all goes on from there."""
    observed: list[Request] = []

    answer = lab.answer

    def answered(router: Router, request: Request) -> Response:
        if request.method != "PUT":
            return answer(router, request)
        observed.append(request)
        if len(observed) - 1 != broken:
            return answer(router, request)
        if arrives:
            answer(router, request)
        return Response(503, b"")

    lab.answer = answered
    digest = bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA
    assert digest == hashlib.sha256(DATA).hexdigest()
    sent = sum(len(request.body) for request in observed)
    again = 0 if arrives else len(observed[broken].body)
    assert sent == len(DATA) + again


def test_an_upload_session_that_is_forgotten_is_started_again(lab, tmp_path):
    """A 410 in the middle costs a second session, not the file."""
    reported = []

    def fault(request: Request) -> Response | None:
        if request.method == "PUT" and len(reported) < 2:
            reported.append(request)
            return Response(410, b"") if len(reported) == 2 else None
        return None

    lab.fault = fault
    bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert lab.read(NAME) == DATA


def test_a_refusal_ends_the_upload(lab, tmp_path):
    """403 will be 403 again."""
    lab.fault = lambda request: Response(403, b"no") if request.method == "PUT" else None
    with pytest.raises(AgentError, match="403") as caught:
        bucket_of(lab).upload(NAME, a_file(tmp_path), len(DATA))
    assert not isinstance(caught.value, TransientError)
    assert NAME not in lab.names()


def test_a_file_that_shrinks_is_torn(lab, tmp_path):
    """No object is made of a file that lost bytes while it was sent."""
    path = a_file(tmp_path)

    def fault(request: Request) -> Response | None:
        if request.method == "PUT":
            os.truncate(path, PART + 10)
        return None

    lab.fault = fault
    with pytest.raises(DamagedError):
        bucket_of(lab).upload(NAME, path, len(DATA))
    assert NAME not in lab.names()
