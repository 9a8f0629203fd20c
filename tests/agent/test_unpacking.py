"""Archives of a cache are unpacked beside their place, by processes that trust nothing in them."""

import contextlib
import gzip
import io
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from orchestrator.agent.caches import pieces, unpacking
from orchestrator.agent.caches.cache_manifest import Piece
from orchestrator.agent.caches.pieces import files_below, in_pieces, pack
from orchestrator.agent.caches.unpacking import Unpacking, UnpackProcesses, merge, unpack
from orchestrator.contract.machine_errors import DamagedError
from tests.kit.waiting import until


def archive(*members: tuple[str, str]) -> tuple[bytes, int]:
    """Return an archive of files with one byte, or links to where they lead."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name, leads in members:
            entry = tarfile.TarInfo(name)
            if leads:
                entry.type, entry.linkname = tarfile.SYMTYPE, leads
                tar.addfile(entry)
            else:
                entry.size = 1
                tar.addfile(entry, io.BytesIO(b"x"))
    return buffer.getvalue(), sum(not leads for _, leads in members)


@pytest.mark.parametrize(
    "members",
    [
        [("folder/../../x", "")],
        [("/etc/x", "")],
        [("other/x", "")],
        [("folder/out", "/etc/passwd")],
        [("folder/out", "../../x")],
        [("folder/way", "."), ("folder/way/x", "")],
        [("folder/x", ""), ("folder/x", "")],
        [("folder/" + "x" * 300, "")],
    ],
    ids=["up", "absolute", "another place", "link out", "link up", "through a link", "twice", "no such name"],
)
def test_an_archive_writes_nothing_outside_of_its_folder(
    tmp_path: Path, members: list[tuple[str, str]]
) -> None:
    """Every member is judged; links are made last, so that nothing is written through one."""
    data, size = archive(*members)
    (tmp_path / "a.tar.gz").write_bytes(data)
    piece = Piece(sha256(data).hexdigest(), len(data), size, len(members), "gz")
    with pytest.raises((DamagedError, OSError)):
        unpack(
            Unpacking(
                str(tmp_path / "a.tar.gz"), piece, {"folder": str(tmp_path / "into/folder")}, inside=True
            )
        )
    assert {path.name for path in tmp_path.iterdir()} <= {"a.tar.gz", "into"}


def test_what_a_process_finds_in_an_archive_is_raised_here_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad content is DamagedError, a missing file OSError; the process has not the job's variables and folder."""
    (tmp_path / "json.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    data, size = archive(("folder/x", ""))
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(data)
    bad.write_bytes(data[:-20])
    piece = Piece(sha256(data).hexdigest(), len(data), size, 1, "gz")

    def task(path: Path) -> Unpacking:
        return Unpacking(str(path), piece, {"folder": str(tmp_path / f"into-{path.name}")}, inside=True)

    with contextlib.closing(UnpackProcesses(1)) as processes:
        with pytest.raises(DamagedError, match="bad is not a complete archive"):
            processes.unpack(task(bad))
        with pytest.raises(OSError, match="none"):
            processes.unpack(task(tmp_path / "none"))
        processes.unpack(task(good))
    assert (tmp_path / "into-good/x").exists()


def test_a_process_that_unpacks_ends_with_its_agent(tmp_path: Path) -> None:
    """The next agent unpacks in the same folders: nobody else may write there."""
    os.mkfifo(tmp_path / "archive")  # To open it takes until somebody writes.
    task = Unpacking(str(tmp_path / "archive"), Piece("0" * 64, 1, 1, 1, "gz"), {}, inside=True)
    command = [sys.executable, "-c", unpacking.START, str(unpacking.PACKAGE_PARENT)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    program.stdin.write(task.line())
    program.stdin.close()
    assert program.wait(timeout=60) == 1


def test_a_process_that_is_killed_is_an_error_of_its_archive(tmp_path: Path) -> None:
    """As by the kernel when memory is short: the cache counts as unusable, and the agent does not wait for ever."""
    os.mkfifo(tmp_path / "archive")  # To open it takes until somebody writes.
    task = Unpacking(str(tmp_path / "archive"), Piece("0" * 64, 1, 1, 1, "gz"), {}, inside=True)
    with ThreadPoolExecutor(1) as pool, contextlib.closing(UnpackProcesses(1)) as processes:
        unpacked = pool.submit(processes.unpack, task)
        until(lambda: processes.started, "its process", 60)
        processes.started[0].kill()
        with pytest.raises(OSError, match="the process that unpacks archive left with -9"):
            unpacked.result(timeout=60)


def test_nothing_is_moved_through_a_link(tmp_path: Path) -> None:
    """A folder on the disk that is a link to elsewhere is no place for what comes back."""
    (tmp_path / "staged/sub").mkdir(parents=True)
    (tmp_path / "staged/sub/file").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "place/sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError):
        merge(tmp_path / "staged", tmp_path / "place")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("zstd", [True, False])
def test_files_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zstd: bool) -> None:
    """Content, mode, time to the second, links and empty folders; with zstd, or where there is none."""
    if not zstd:
        monkeypatch.setattr(pieces.shutil, "which", lambda _name: None)
    place = tmp_path / "place"
    (place / "empty").mkdir(parents=True)
    (place / "run").write_bytes(b"#!/bin/sh\n" * 1000)
    (place / "run").chmod(0o755)
    (place / "data").write_bytes(bytes(range(256)) * 1000)
    (place / "link").symlink_to("run")
    before = files_below({"folder": place})
    (part,) = in_pieces(list(before.values()))
    packed = pack(part, tmp_path / "piece", [], lambda: None)
    assert packed.piece.kind == ("zst" if zstd else "gz")
    with contextlib.closing(UnpackProcesses(1)) as processes:
        processes.unpack(
            Unpacking(str(packed.path), packed.piece, {"folder": str(tmp_path / "into")}, inside=True)
        )
    merge(tmp_path / "into", tmp_path / "back")
    after = files_below({"folder": tmp_path / "back"})
    assert {m: (one.size, one.mode) for m, one in after.items()} == {
        m: (one.size, one.mode) for m, one in before.items()
    }
    files = [m for m, one in before.items() if one.size]
    assert [after[m].modified for m in files] == [before[m].modified // 10**9 * 10**9 for m in files]
    assert [Path(after[m].path).read_bytes() for m in files] == [
        Path(before[m].path).read_bytes() for m in files
    ]
