"""What of the files that a job writes over again and again is a whole save, if the job was killed meanwhile."""

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agent_lab import running_lab
from tests.agent.format_trees import archive, h5
from tests.formats.scripted_job import ScriptedJob, scripted_job

EVERY = 20.0
"""Seconds between two saves."""
LAST = 100.0
"""When the last save begins."""
PAIR = ("weights.npz", "momentum.npz")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ScriptedJob]:
    """Return a job on a machine whose agent looks each 5 s."""
    with scripted_job(tmp_path) as job:
        yield job


def saved(number: float) -> bytes:
    """Return a whole file of a save, always of the same size."""
    return archive({"save": f"{number:6.0f}"})


def train(job: ScriptedJob, names: tuple[str, ...], until: float) -> None:
    """Write these files one second after the other, every 20 s, until a moment."""

    def write(now: float) -> None:
        for place, name in enumerate(names):
            if now >= EVERY and now % EVERY == place:
                (job.folder / name).write_bytes(saved(now - place))

    for _ in job.commits(write, until):
        continue


@pytest.mark.parametrize(("after", "save"), [(0.5, LAST - EVERY), (1.5, LAST)], ids=["between", "after both"])
def test_two_files_that_are_written_for_each_save_are_never_of_two(
    job: ScriptedJob, after: float, save: float
) -> None:
    """`np.save` of the weights, then of the momentum: SIGTERM ends Python between the two."""
    train(job, PAIR, LAST + after)
    job.context.local.rest()
    job.last_commit()
    assert job.committed() == {name: saved(save) for name in PAIR}


def test_a_job_that_ends_well_has_saved_what_it_wanted(job: ScriptedJob) -> None:
    """With status 0 a file that stayed the same needed no change."""
    train(job, PAIR, LAST + 0.5)
    job.context.local.rest(in_order=True)
    job.last_commit()
    assert job.committed() == {PAIR[0]: saved(LAST), PAIR[1]: saved(LAST - EVERY)}


@pytest.mark.parametrize("killed", [False, True], ids=["ended by itself", "killed"])
def test_what_is_saved_because_of_the_signal_is_whole(job: ScriptedJob, killed: bool) -> None:
    """A program that knows the signal may save less than usual, `best.npz` stays; then it ends with status 143."""
    train(job, PAIR, LAST - 5)
    job.context.local.asked_to_stop()
    (job.folder / PAIR[0]).write_bytes(saved(LAST))
    later = time.time() + 1
    os.utime(job.folder / PAIR[0], (later, later))
    if killed:
        job.context.local.has_not_stopped()
    job.context.local.rest()
    job.last_commit()
    assert job.committed()[PAIR[0]] == saved(LAST - EVERY if killed else LAST)


def test_a_file_that_is_saved_now_and_then_is_not_waited_for(job: ScriptedJob) -> None:
    """`best.npz` belongs to the first saves and not to the later ones, which a kill must not undo."""

    def write(now: float) -> None:
        if now >= EVERY and now % EVERY == 0:
            (job.folder / "ckpt.npz").write_bytes(saved(now))
            if now <= 3 * EVERY:
                (job.folder / "best.npz").write_bytes(saved(now))

    for _ in job.commits(write, LAST + 0.5):
        continue
    job.context.local.rest()
    job.last_commit()
    assert job.committed() == {"ckpt.npz": saved(LAST), "best.npz": saved(3 * EVERY)}


@pytest.mark.parametrize(("rest", "save"), [(0.3, 80), (6.0, 100)], ids=["at once", "after a rest"])
def test_a_file_that_is_updated_in_place_is_not_taken_after_a_kill(
    job: ScriptedJob, rest: float, save: int
) -> None:
    """As h5py in mode `r+` does it: each of its pieces leaves the file whole, by its header."""
    file, pieces = job.folder / "weights.h5", 4

    def write(now: float) -> None:
        if now == 0:
            file.write_bytes(h5())
        piece = now % EVERY / 0.5
        if now >= EVERY and piece < (pieces if now < LAST or rest > 5 else pieces / 2) and now % 0.5 == 0:
            with file.open("r+b") as opened:
                opened.seek(-8 * (int(piece) + 1), 2)
                opened.write(b"%08d" % (now // EVERY * EVERY))

    for _ in job.commits(write, LAST + 1.5 + rest):
        continue
    job.context.local.rest()
    job.last_commit()
    data = job.committed()["weights.h5"]
    assert [int(data[-8 * (n + 1) :][:8]) for n in range(pieces)] == [save] * pieces


def test_a_file_that_is_written_over_all_the_time_is_taken_after_a_kill(job: ScriptedJob) -> None:
    """`pickle.dump` to one name every three seconds: no two writes belong together."""

    def write(now: float) -> None:
        if now >= 3 and now % 3 == 0:
            (job.folder / "state.pkl").write_bytes(pickle.dumps({"save": now}))

    for _ in job.commits(write, 15.5):
        continue
    job.context.local.rest()
    job.last_commit()
    assert job.committed() == {"state.pkl": pickle.dumps({"save": 15.0})}


def test_what_grows_beside_a_save_makes_no_kill_suspect(job: ScriptedJob) -> None:
    """`results.csv` gets a line every three seconds."""

    def write(now: float) -> None:
        if now % 3 == 0:
            (job.folder / "results.csv").write_text(f"{now:9.2f}\n")
        if now >= EVERY and now % EVERY == 0:
            (job.folder / "weights.h5").write_bytes(h5()[:-8] + b"%08d" % now)

    for _ in job.commits(write, LAST + 0.5):
        continue
    job.context.local.rest()
    job.last_commit()
    assert job.committed()["weights.h5"].endswith(b"%08d" % LAST)


PROGRAM = """
import json, os, pickle, signal, sys, time
folder, root = os.environ["TPUCTL_CHECKPOINT_DIR"], os.environ["TPUCTL_ROOT"]
names = [os.path.join(folder, one) for one in ("weights.pkl", "momentum.pkl")]
state = [pickle.load(open(one, "rb")) for one in names] if os.path.exists(names[1]) else [0, 0]
print("begins with", state, flush=True)
def committed():
    return json.load(open(os.path.join(root, "state", "status.json")))["committed_step"]
for save in range(state[0] + 1, 6):
    before = committed()
    for name in names:
        if save == 4 and name == names[1] and os.environ["TPUCTL_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        with open(name, "wb") as file:
            pickle.dump(save, file)
    while committed() == before and save < 5:
        time.sleep(0.02)
"""


def test_a_program_that_dies_between_two_files_goes_on_from_the_save_before(tmp_path: Path) -> None:
    """On a real machine, where the torn save lies in the folder that the next start looks into."""
    with running_lab(tmp_path) as lab:
        code = lab.put_bundle({"train.py": PROGRAM.encode()})
        machine = lab.machine(BUNDLE=code, CHECKPOINT_FORMAT="auto", HEARTBEAT_SECONDS=0.5).run_to_end()
        assert machine.heartbeat()["phase"] == "done"
        begun = [line for line in lab.log().splitlines() if "begins with" in line]
        assert [line.partition("with ")[2] for line in begun] == ["[0, 0]", "[3, 3]"]
