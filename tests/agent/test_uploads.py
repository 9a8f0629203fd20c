"""Large files go up in parts, several at a time: whole and as they were, or not at all."""

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from orchestrator.agent.cloud import transfers
from orchestrator.agent.cloud.transfers import PARTS, UploadPart, joined_crc
from orchestrator.contract.bucket.completeness import judge
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError, TransientError
from orchestrator.emulator.http.router import Response
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.agent.agent_lab import AgentLab
from tests.agent.transfer_kit import (
    DATA,
    NAME,
    PART,
    PLACE,
    a_bucket,
    answering,
    held,
    names,
    put,
    small_parts,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bucket(lab, monkeypatch):
    """Return the agent's client of a bucket; a file of some kilobytes is a large one."""
    small_parts(monkeypatch)
    return a_bucket(lab)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of eleven parts."""
    path = tmp_path / "model.bin"
    path.write_bytes(DATA)
    return path


def test_a_large_file_is_made_of_parts_of_which_nothing_remains(lab, bucket, file):
    """The bucket joins them in order, and removes them with the same call."""
    observed = answering(lab, lambda _request, _kind, _number, true: true())
    assert bucket.upload(NAME, file, len(DATA)) == hashlib.sha256(DATA).hexdigest()
    assert held(lab) == DATA
    assert names(lab) == [NAME]
    assert (observed["part"], observed["compose"], observed["delete"]) == (11, 1, 0)
    assert lab.storage.objects.get(PLACE, NAME).md5 is None


def test_more_parts_than_one_call_joins_are_joined_in_two_steps(lab, bucket, tmp_path):
    """In order too, and without anything in between that stays."""
    data = random.Random(4).randbytes(100 * PART + 1)
    (tmp_path / "large").write_bytes(data)
    observed = answering(lab, lambda _request, _kind, _number, true: true())
    bucket.upload(NAME, tmp_path / "large", len(data))
    assert held(lab) == data
    assert names(lab) == [NAME]
    assert (observed["part"], observed["compose"]) == (101, 5)


def test_the_sum_of_all_parts_follows_from_theirs():
    """As if the bytes had been read once more, whatever their sizes."""
    draw = random.Random(5)
    pieces = [draw.randbytes(draw.choice([0, 1, 7, 4096, 100_001])) for _ in range(20)]
    parts = [UploadPart("x", "1", len(one), google_crc32c.value(one)) for one in pieces]
    assert joined_crc(parts) == google_crc32c.value(b"".join(pieces))
    assert joined_crc([*parts, replace(parts[0], crc=None)]) is None


def test_a_bucket_that_keeps_what_is_deleted_gets_no_parts(lab, bucket, file):
    """They would be billed for days: the file goes up in one session."""
    lab.storage.buckets.patch(
        PLACE, {"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, Preconditions()
    )
    observed = answering(lab, lambda _request, _kind, _number, true: true())
    bucket.upload(NAME, file, len(DATA))
    assert held(lab) == DATA
    assert observed["compose"] == 0


def test_a_service_that_does_not_remove_parts_gets_them_removed(lab, bucket, file):
    """No answer shows whether it knows the field of the request that asks for it."""

    def ignorant(request, what, _number, true):
        if what != "compose":
            return true()
        asked = json.loads(request.body)
        del asked["deleteSourceObjects"]
        return true(replace(request, content=json.dumps(asked).encode()))

    observed = answering(lab, ignorant)
    bucket.upload(NAME, file, len(DATA))
    assert names(lab) == [NAME]
    assert observed["delete"] == 11


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("what", ["part", "compose", "list"])
def test_what_fails_is_tried_again_and_nothing_is_there_twice(lab, bucket, file, what, arrives, status):
    """Also where it was done and only its answer was lost."""

    def failing(_request, one, number, true):
        if (one, number) != (what, 1):
            return true()
        if arrives:
            true()
        return Response(status, b"")

    answering(lab, failing)
    assert bucket.upload(NAME, file, len(DATA)) == hashlib.sha256(DATA).hexdigest()
    assert held(lab) == DATA
    assert names(lab) == [NAME]


def test_a_part_that_arrives_changed_is_no_part(lab, bucket, file):
    """The bucket shows the sum of what it has stored; nothing is made of it."""

    def damaged(request, what, number, true):
        if (what, number) != ("part", 3):
            return true()
        return true(replace(request, content=b"\0" + request.body[1:]))

    answering(lab, damaged)
    with pytest.raises(TransientError, match="other bytes"):
        bucket.upload(NAME, file, len(DATA))
    assert names(lab) == []


def test_parts_that_are_joined_in_another_order_are_found_out(lab, bucket, file):
    """Each part is right, and the size too: only the checksum of the whole shows it."""

    def shuffled(request, what, _number, true):
        if what != "compose":
            return true()
        asked = json.loads(request.body)
        asked["sourceObjects"][0], asked["sourceObjects"][1] = asked["sourceObjects"][1::-1]
        return true(replace(request, content=json.dumps(asked).encode()))

    answering(lab, shuffled)
    with pytest.raises(DamagedError, match="joined other bytes"):
        bucket.upload(NAME, file, len(DATA))


def test_a_part_of_another_generation_is_not_joined(lab, bucket, file):
    """Somebody who may write to the bucket replaces one before the call that joins them."""

    def replaced(_request, what, _number, true):
        if what == "compose":
            part = next(name for name in names(lab) if PARTS in name)
            put(lab, b"x" * PART, part)
        return true()

    answering(lab, replaced)
    with pytest.raises(AgentError):
        bucket.upload(NAME, file, len(DATA))
    assert held(lab) is None


def test_an_object_that_another_writer_has_written_meanwhile_stays(lab, bucket, file):
    """The object was not there when the upload began: that holds until its end, or the upload fails."""

    def theirs(_request, what, _number, true):
        if what == "compose":
            put(lab, b"theirs")
        return true()

    answering(lab, theirs)
    with pytest.raises(PreconditionError):
        bucket.upload(NAME, file, len(DATA))
    assert held(lab) == b"theirs"
    assert names(lab) == [NAME]


def test_a_file_that_shrinks_is_torn(lab, bucket, file):
    """No object is made of a file that lost bytes while it was sent, and no part of it is left."""

    def cut(_request, what, _number, true):
        if what == "part":
            os.truncate(file, PART)
        return true()

    answering(lab, cut)
    with pytest.raises(DamagedError, match="changed"):
        bucket.upload(NAME, file, len(DATA))
    assert names(lab) == []


def test_the_digest_is_that_of_the_bytes_in_the_bucket_though_the_file_changes(lab, bucket, file):
    """A manifest with another sha256 than the object's would make the checkpoint torn."""

    def grown(_request, what, number, true):
        if (what, number) == ("part", 1):
            # In place: a file that is cut for a moment would be refused, rightly.
            with file.open("r+b") as there:
                there.write(bytes(len(DATA)))
        return true()

    answering(lab, grown)
    assert bucket.upload(NAME, file, len(DATA)) == hashlib.sha256(held(lab)).hexdigest()


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.agent.cloud import storage, transfers
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.cloud.transport import Transport

url, place, name, path, at = sys.argv[1:]
storage.LARGE = transfers.SMALLEST_PART = transfers.MAX_PART = 4096
bucket = JobBucket.from_environ(place, {"STORAGE_EMULATOR_HOST": url}, Metadata("127.0.0.1:1"))
bucket._streams = transfers.Streams(1)
step, send = 0, Transport.send

def watched(self, method, target, *rest, **options):
    global step
    for moment in ("before", "after"):
        if target.startswith(url):
            step += 1
        if target.startswith(url) and step == int(at):
            os.kill(os.getpid(), signal.SIGKILL)
        reply = send(self, method, target, *rest, **options) if moment == "before" else reply
    return reply

Transport.send = watched
bucket.upload(name, Path(path), Path(path).stat().st_size)
print(step)
"""


def killed(lab: AgentLab, file: Path, at: int) -> subprocess.CompletedProcess[str]:
    """Upload the file in a process that kills itself at a step; a step is the moment before or after a request."""
    words = [lab.url, PLACE, NAME, str(file), str(at)]
    return subprocess.run(
        [sys.executable, "-c", KILLED, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_kill_at_each_step_leaves_nothing_that_counts_and_nothing_for_ever(
    lab, bucket, tmp_path, monkeypatch
):
    """The object is whole or not there; parts make no checkpoint, and the next upload takes them away."""
    monkeypatch.setattr(transfers, "ABANDONED", -60.0)  # what was written just now is old already
    path = tmp_path / "few"
    path.write_bytes(DATA[: 3 * PART + 1])
    steps = int(killed(lab, path, 0).stdout)
    lab.storage.objects.delete(PLACE, NAME, None, Preconditions())
    # The bucket's policy, the look for the object, four parts, one that joins them, one list; twice each.
    assert steps == 16
    for at in range(1, steps + 1):
        assert killed(lab, path, at).returncode == -9
        assert held(lab) in (None, path.read_bytes())
        sizes = {one.name: one.size for one in lab.storage.objects.all() if one.bucket == PLACE}
        assert judge(sizes, {}).checkpoint is None
        bucket.upload(NAME, path, path.stat().st_size)
        assert names(lab) == [NAME]
        lab.storage.objects.delete(PLACE, NAME, None, Preconditions())


def test_parts_of_another_process_that_may_still_be_at_work_stay(lab, bucket, file):
    """Two machines may bring the same file; only after a day nobody is."""
    put(lab, b"part", f"{NAME}{PARTS}other/000000")
    bucket.upload(NAME, file, len(DATA))
    assert names(lab) == [NAME, f"{NAME}{PARTS}other/000000"]
