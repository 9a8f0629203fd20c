"""How long after the start of a job that saves often its first save is in the bucket."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.format_trees import archive, h5
from tests.formats.scripted_job import ScriptedJob, scripted_job

EVERY = 2.5
"""Seconds between two saves."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ScriptedJob]:
    """Return a job on a machine whose agent looks each 5 s."""
    with scripted_job(tmp_path) as job:
        yield job


@pytest.mark.parametrize(
    ("keep", "seconds", "step"), [(99, 5.0, 10), (2, 5.0, 10), (1, 12.5, 50)], ids=["all", "two", "one"]
)
def test_the_first_of_many_quick_saves_is_committed_soon(
    job: ScriptedJob, keep: int, seconds: float, step: int
) -> None:
    """A save is finished once the next one is there; one that is deleted at once counts as the fifth new file."""

    def write(now: float) -> None:
        number = int(now / EVERY)
        if number and now % EVERY == 0:
            (job.folder / f"ckpt_{10 * number:06d}.npz").write_bytes(archive({"x": number}))
            for old in sorted(job.folder.glob("ckpt_*.npz"))[:-keep]:
                old.unlink()

    assert job.first_commit(write) == (seconds, step)


def test_a_first_save_that_is_renamed_into_place_is_committed_soon_too(job: ScriptedJob) -> None:
    """Each is whole and has the size of the one before, so the third is committed."""

    def write(now: float) -> None:
        if now and now % EVERY == 0:
            (job.folder / "x.tmp").write_bytes(archive({"x": now}))
            (job.folder / "x.tmp").replace(job.folder / "ckpt.npz")

    assert job.first_commit(write) == (7.5, 0)


def test_a_first_save_that_is_written_over_is_committed_soon_too(job: ScriptedJob) -> None:
    """`np.savez` to one name: the file stays the same one, and is whole with its old size after each save."""

    def write(now: float) -> None:
        if now and now % EVERY == 0:
            (job.folder / "weights.npz").write_bytes(archive({"x": now}))

    assert job.first_commit(write) == (7.5, 0)


def test_a_file_that_is_updated_in_place_is_not_taken_between_two_of_its_pieces(job: ScriptedJob) -> None:
    """Its header is whole and its size the same all the time: only a checksum over all would show the mixture."""

    def write(now: float) -> None:
        if now == 0:
            (job.folder / "weights.h5").write_bytes(h5())
        if 2 <= now < 4.5 and now % 0.5 == 0:
            with (job.folder / "weights.h5").open("r+b") as file:
                file.seek(-8 * int(2 * (now - 1.5)), 2)
                file.write(b"new data")

    assert job.first_commit(write, 8.0) is None


@pytest.mark.parametrize("every", [4.0, 6.5, 9.0])
def test_a_file_that_is_often_updated_in_place_is_copied_while_it_rests(
    job: ScriptedJob, every: float
) -> None:
    """As h5py in mode `r+` does it: a look each quarter of a second would find two saves in one file."""
    file, pieces, commits = job.folder / "weights.h5", 4, 0

    def write(now: float) -> None:
        if now == 0:
            file.write_bytes(h5()[: -8 * pieces] + b"%08d" % 0 * pieces)
        save, piece = int(now // every), now % every / 0.5
        if save and piece < pieces and piece == int(piece):
            with file.open("r+b") as opened:
                opened.seek(-8 * (int(piece) + 1), 2)
                opened.write(b"%08d" % save)

    for at in job.commits(write, 240.0):
        data = job.committed()["weights.h5"]
        assert len({data[-8 * (n + 1) :][:8] for n in range(pieces)}) == 1, at
        commits += 1
    assert commits > 8


def test_quick_looks_do_not_take_a_file_that_grows_for_a_finished_one(job: ScriptedJob) -> None:
    """A pickle after a pickle in one file: what is there is whole at each look, and not the whole save."""

    def write(now: float) -> None:
        if 5 <= now < 18:
            with (job.folder / "state_10.pkl").open("ab") as file:
                file.write(pickle.dumps({"part": now}))

    assert job.first_commit(write, 18.0) is None


def test_a_save_of_several_files_is_not_finished_by_the_next_one(job: ScriptedJob) -> None:
    """The job may be deleting the files of the one before, of which only one is left."""

    def write(now: float) -> None:
        if now == 0:
            for name in ("model_10.npz", "optim_10.npz"):
                (job.folder / name).write_bytes(archive({"x": 1}))
        if now == 3:
            (job.folder / "model_20.npz").write_bytes(archive({"x": 2}))
            (job.folder / "optim_10.npz").unlink()
        if now == 3.75:
            (job.folder / "model_10.npz").unlink()

    assert job.first_commit(write, 4.5) is None


def test_a_look_that_found_nothing_to_commit_is_soon_followed_by_another(job: ScriptedJob) -> None:
    """What is saved and not committed yet is lost by a kill; after a commit the usual time passes."""
    committer = job.context.committer
    committer.begin(1, None)
    assert not committer.commit()
    assert committer.pause is not None
    assert committer.pause < 1.0
    (job.folder / "ckpt_10.npz").write_bytes(archive({"x": 1}))
    assert committer.commit()
    assert committer.pause is None


@pytest.mark.parametrize(("took", "pause"), [(0.001, 0.25), (0.05, 1.0), (2.0, 5.0)])
def test_looks_take_a_twentieth_of_the_time_at_most(job: ScriptedJob, took: float, pause: float) -> None:
    """A large folder is listed, or a large file read, no more often than each 5 s."""
    assert job.context.local.pause_after(took) == pause
