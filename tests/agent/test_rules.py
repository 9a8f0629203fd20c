"""The agent's pure rules, and what every source file must be."""

import ast
import io
import json
import tarfile
from pathlib import Path

import pytest

from orchestrator import agent, contract
from orchestrator.agent import outcome
from orchestrator.agent.agreement.attempts import Attempt, next_attempt
from orchestrator.agent.attempt.install_bundle import unpack
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind, UserCommand, outcome_of
from orchestrator.agent.telemetry.progress import ProgressReader, read_progress
from orchestrator.contract.bucket.completeness import (
    CompleteCheckpoint,
    completed_by,
    disposable,
    made_progress,
)
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, parse
from orchestrator.contract.formats.marker import step_of
from orchestrator.contract.machine_errors import DamagedError

SOURCES = sorted(p for room in (agent, contract) for p in Path(room.__file__).parent.rglob("*.py"))


def a_manifest(worker: int = 0, workers: int = 2, attempt: int = 1, step: int = 40) -> Manifest:
    """Return a manifest."""
    return Manifest(step, 1, worker, workers, attempt, f"step-{step}", (StoredFile("a", 1, "0" * 64),), 1.0)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_source_is_python_3_8(source: Path) -> None:
    """Machines carry Python 3.8: newer syntax would stop the agent at its first line."""
    ast.parse(source.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("folder", "step"),
    [("step-000040", 40), ("40", 40), ("epoch2-step300", 300), ("best", None), ("ckpt_7.tmp", 7)],
)
def test_step_is_the_last_integer(folder: str, step: int | None) -> None:
    """The last integer of the folder's name is the step."""
    assert step_of(folder) == step


def test_complete_needs_every_worker_of_one_attempt() -> None:
    """Parts of two attempts, or of some workers only, are no checkpoint."""
    assert completed_by([]) is None
    assert completed_by([a_manifest(0)]) is None
    assert completed_by([a_manifest(0, attempt=1), a_manifest(1, attempt=2)]) is None
    found = completed_by([a_manifest(0), a_manifest(1)])
    assert found is not None
    assert (found.step, found.incarnation, found.workers) == (40, 1, 2)


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_retention_never_goes_below_two(keep: int) -> None:
    """However few are asked for, two complete checkpoints stay."""
    assert disposable([CompleteCheckpoint(10), CompleteCheckpoint(20), CompleteCheckpoint(30)], keep) == (10,)
    assert disposable([CompleteCheckpoint(10)], keep) == ()


def test_failures_count_only_without_progress() -> None:
    """Progress sets the count to zero, and so does a start that somebody asked for."""
    last = Attempt(3, 20, 1, 2, "why", 0)
    assert next_attempt(last, CompleteCheckpoint(20, 1), "r", 0, counted=True).failures == 3
    assert next_attempt(last, None, "r", 0, counted=True).failures == 3
    assert next_attempt(last, CompleteCheckpoint(30, 1), "r", 0, counted=True) == Attempt(4, 30, 1, 0, "r", 0)
    assert next_attempt(last, CompleteCheckpoint(20, 1), "r", 0, counted=False).failures == 0
    assert made_progress(CompleteCheckpoint(1, 1), None)


@pytest.mark.parametrize(
    ("code", "target", "reported", "committed", "expected"),
    [
        (0, None, None, None, JobOutcomeKind.DONE),
        (1, None, 99, 99, JobOutcomeKind.FAILED),
        (-9, None, None, None, JobOutcomeKind.FAILED),
        (0, 40, 40, None, JobOutcomeKind.DONE),
        (0, 40, 39, None, JobOutcomeKind.FAILED),
        (0, 40, None, None, JobOutcomeKind.FAILED),
        (-15, 40, 40, None, JobOutcomeKind.FAILED),
        (-15, 40, 40, 40, JobOutcomeKind.DONE),
        (42, 40, None, 30, JobOutcomeKind.FAILED),
    ],
)
def test_exit_code_alone_proves_nothing(
    code: int, target: int | None, reported: int | None, committed: int | None, expected: JobOutcomeKind
) -> None:
    """Done is a committed target, or status 0 with the target reached or none declared; a signal never is."""
    assert outcome_of(code, target, reported, committed).kind is expected


@pytest.mark.parametrize(
    ("code", "reason"),
    [(0, "the setup command exited with status 0"), (-9, "the setup command was ended by SIGKILL")],
)
def test_the_reason_names_the_program_that_ended(code: int, reason: str) -> None:
    """The setup command is judged as the job is."""
    assert outcome_of(code, None, None, None, command=UserCommand.SETUP).message == reason


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"folder": "../x"},
        {"folder": "a/../../b"},
        {"folder": "/a"},
        {"files": [{"name": "../../etc/passwd", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"name": "/etc/passwd", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"name": "a", "size": 1, "sha256": "short"}]},
        {"step": None},
    ],
)
def test_manifest_that_is_wrong_or_leads_out_is_refused(change: dict[str, object]) -> None:
    """A manifest comes from the network: it may name nothing outside its folder."""
    with pytest.raises(DamagedError):
        parse(json.dumps({**json.loads(a_manifest().text()), **change}).encode(), "m")
    assert parse(a_manifest().text().encode(), "m") == a_manifest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"step": 4, "loss": 0.5}', ProgressReader(4, 0.5)),
        ('{"step": 4, "loss": NaN}', ProgressReader(4, None)),
        ('{"step": "4"}', ProgressReader()),
        ("[1]", ProgressReader()),
        ('{"step": 4', ProgressReader()),
    ],
)
def test_progress_that_is_no_number_is_nothing(tmp_path: Path, text: str, expected: ProgressReader) -> None:
    """The job writes what it likes; only numbers are believed."""
    (tmp_path / "p").write_text(text)
    assert read_progress(tmp_path / "p") == expected


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """Return a member of an archive."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "members",
    [
        [member("/abs")],
        [member("../up")],
        [member("a/../../up")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("link", tarfile.SYMTYPE, "..")],
        [member("a/link", tarfile.SYMTYPE, "../../x")],
        [member("hard", tarfile.LNKTYPE, "../x")],
        [member("here", tarfile.SYMTYPE, "."), member("here/up", tarfile.SYMTYPE, "..")],
        [member("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda members: members[-1].name,
)
def test_bundle_that_leads_out_is_refused_whole(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    """Nothing of an archive is written when one member would leave its folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for one in [member("fine"), *members]:
            tar.addfile(one)
    (tmp_path / "b.tar.gz").write_bytes(buffer.getvalue())
    target = tmp_path / "target"
    target.mkdir()

    with pytest.raises(DamagedError):
        unpack(tmp_path / "b.tar.gz", target)

    assert list(target.iterdir()) == []


def test_cut_archive_is_torn(tmp_path: Path) -> None:
    """A tar.gz without its end is refused as torn."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("a")
        entry.size = 100_000
        tar.addfile(entry, io.BytesIO(bytes(range(250)) * 400))
    (tmp_path / "b.tar.gz").write_bytes(buffer.getvalue()[:-200])
    with pytest.raises(DamagedError):
        unpack(tmp_path / "b.tar.gz", tmp_path / "target")


@pytest.mark.parametrize("expected", [JobOutcomeKind.DONE, JobOutcomeKind.STOPPED, JobOutcomeKind.FAILED])
def test_status_zero_with_nothing_committed_is_followed_by_no_start(expected: JobOutcomeKind) -> None:
    """Another start from step 0 would do all of it once more; whether it counts as done is not the job's to say."""
    ended = outcome.settle(JobOutcome(expected, "r", 0), committed=None, saved=False, output=b"")
    assert ended.kind is JobOutcomeKind.UNCOMMITTED
    crashed = outcome.settle(
        JobOutcome(JobOutcomeKind.FAILED, "r", 1), committed=None, saved=False, output=b""
    )
    assert crashed.kind is JobOutcomeKind.FAILED
