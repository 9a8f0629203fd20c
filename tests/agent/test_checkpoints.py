"""What is committed, what is restored, what is kept: no torn checkpoint passes in either direction."""

import hashlib
import json
import sys
from pathlib import Path

from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import AgentLab


def test_torn_local_checkpoint_is_never_committed(lab: AgentLab) -> None:
    """A folder without its marker is not uploaded, and is moved to quarantine before the next start."""
    go = lab.folder / "go"
    command = (
        'if [ -e ../../again ]; then ls "$TPUCTL_CHECKPOINT_DIR"; exit 0; fi; touch ../../again; '
        'mkdir -p "$TPUCTL_CHECKPOINT_DIR/step-7"; echo half > "$TPUCTL_CHECKPOINT_DIR/step-7/state"; '
        f"until [ -e {go} ]; do sleep 0.02; done; exit 1"
    )
    machine = lab.machine(COMMAND=command).start()
    machine.until((machine.root / "checkpoints" / "step-7" / "state").exists, "half a save")
    machine.until_reports()
    go.touch()
    assert machine.wait() == 0

    assert lab.names("checkpoints/") == []
    assert [one.name.rsplit("-", 1)[0] for one in (machine.root / "quarantine").iterdir()] == ["torn-step-7"]
    assert "\nstep-7\n" not in lab.log()


def test_checkpoint_that_changes_during_the_upload_is_not_committed(lab: AgentLab) -> None:
    """A file that is written while its folder is uploaded keeps the manifest away until the folder is at rest."""
    folder = lab.folder / "m0" / "checkpoints" / "step-000010"
    touched: list[str] = []

    def write_meanwhile(request: Request) -> Response | None:
        name = request.query.get("name", "")
        if "00000010/g1/w0/" in name and len(touched) < 2:
            (folder / "state.json").write_text(f"changed {len(touched)}" * 3)
            touched.append(name)
        return None

    lab.fault = write_meanwhile
    machine = lab.machine(_STEPS=10).run_to_end()

    manifest = lab.json("checkpoints/00000010/g1/w0.manifest.json")
    stored = lab.read("checkpoints/00000010/g1/w0/state.json")
    listed = {one["name"]: one["sha256"] for one in manifest["files"]}
    assert listed["state.json"] == hashlib.sha256(stored).hexdigest()
    assert "changed while" in machine.agent_log()


def test_torn_upload_is_never_restored(lab: AgentLab) -> None:
    """Files without a manifest do not exist: the older complete checkpoint is taken."""
    lab.machine("m0", _STEPS=20).run_to_end()
    for name in [name for name in lab.names("checkpoints/00000020/") if "/w0/" in name]:
        lab.put(name.replace("00000020", "00000030"), lab.read(name))

    second = lab.machine("m1", INCARNATION=2, _STEPS=40).run_to_end()

    assert second.heartbeat()["resumed_from"] == 20
    restored = second.root / "checkpoints" / "step-000020"
    assert json.loads((restored / "state.json").read_text())["step"] == 20
    assert not list((second.root / "checkpoints").glob(".restore-*"))


def test_stored_checkpoint_with_other_bytes_is_put_aside(lab: AgentLab) -> None:
    """Bytes that do not match their manifest are refused twice, then the checkpoint before is used."""
    lab.machine("m0", _STEPS=20, _EACH_COMMITTED=1).run_to_end()
    assert len(lab.manifests()) == 2
    lab.put("checkpoints/00000020/g1/w0/part/weights.bin", b"x" * 5000)

    second = lab.machine("m1", INCARNATION=2, _STEPS=20).run_to_end()

    assert second.heartbeat()["resumed_from"] == 10
    assert [one["resume_step"] for one in lab.attempts(2)] == [20, 10]
    assert "weights.bin has another sha256" in lab.attempts(2)[1]["reason"]
    assert any(".manifest.json.torn-" in name for name in lab.names("checkpoints/00000020/g1/"))


def test_stored_checkpoint_with_a_file_of_another_size_is_passed_over(lab: AgentLab) -> None:
    """It is not complete, so nobody brings it here first, and nothing of it is deleted; the reason names both."""
    lab.machine("m0", _STEPS=20, _EACH_COMMITTED=1).run_to_end()
    lab.put("checkpoints/00000020/g1/w0/part/weights.bin", b"not what was saved")
    before = lab.names("checkpoints/00000020/g1/")

    second = lab.machine("m1", INCARNATION=2, _STEPS=20).run_to_end()

    assert second.heartbeat()["resumed_from"] == 10
    [attempt] = lab.attempts(2)
    assert attempt["resume_step"] == 10
    lacks = "weights.bin of worker 0 has 18 bytes, not 5000"
    assert attempt["reason"] == (
        f"the checkpoint is complete; step 20 of TPU #1 is not complete: part/{lacks}"
    )
    assert f"resume from step 10 ({attempt['reason']})" in lab.log(incarnation=2)
    assert lab.names("checkpoints/00000020/g1/") == before


def test_a_start_from_the_beginning_names_the_checkpoints_that_are_not_complete(lab: AgentLab) -> None:
    """Otherwise nobody would know that a checkpoint was there, and why it did not count."""
    lab.machine("m0", _STEPS=10).run_to_end()
    lab.put("checkpoints/00000010/g1/w0/part/weights.bin", b"not what was saved")

    second = lab.machine("m1", INCARNATION=2, _STEPS=10).run_to_end()

    assert second.heartbeat()["resumed_from"] is None
    assert lab.attempts(2)[0]["reason"] == (
        "step 10 of TPU #1 is not complete: part/weights.bin of worker 0 has 18 bytes, not 5000"
    )


def test_restored_files_are_as_old_as_they_were(lab: AgentLab) -> None:
    """Programs that take the youngest file of a folder, as Lightning does, take the same one after a restore."""
    command = (
        'cd "$TPUCTL_CHECKPOINT_DIR"; if [ -e step-7 ]; then ls -t step-7; exit 0; fi; mkdir step-7; '
        "touch -d @1700000003 step-7/last-v1; touch -d @1700000002 step-7/zeta; "
        "touch -d @1700000001 step-7/last; touch -d @1700000000 step-7/COMPLETE"
    )
    lab.machine("m0", COMMAND=command).run_to_end()
    assert len(lab.manifests()) == 1
    second = lab.machine("m1", INCARNATION=2, COMMAND=command).run_to_end()
    folder = second.root / "checkpoints/step-7"
    assert {one.name: int(one.stat().st_mtime) - 1700000000 for one in folder.iterdir()} == {
        "last-v1": 3, "zeta": 2, "last": 1, "COMPLETE": 0,
    }  # fmt: skip
    assert "\nlast-v1\nzeta\nlast\nCOMPLETE\n" in lab.log(incarnation=2)


def test_local_steps_after_the_resume_step_are_moved_aside(lab: AgentLab) -> None:
    """A local save that the bucket does not know is not resumed from by a later incarnation on the same disk."""
    first = lab.machine("m0", _STEPS=20).run_to_end()
    later = first.root / "checkpoints" / "step-000099"
    later.mkdir()
    (later / "COMPLETE").write_text("")
    (first.root / "state" / "stop").unlink()

    lab.machine("m0", INCARNATION=2, _STEPS=30).run_to_end()

    assert not later.exists()
    assert [one.name for one in (first.root / "quarantine").glob("step-000099-*")] != []
    assert "begin after 20" in lab.log(incarnation=2)


def test_pending_local_save_is_committed_when_the_agent_comes_back(lab: AgentLab) -> None:
    """What the job had finished before everything was killed is committed before the next attempt chooses."""
    machine = lab.machine(_STEPS=400, _STEP_SECONDS=0.02).start()
    machine.until_committed(10)
    lab.fault = lambda request: Response(503, b"") if "/w0" in request.query.get("name", "") else None
    newest = machine.root / "checkpoints"
    machine.until(lambda: len(list(newest.glob("step-*/COMPLETE"))) >= 4, "more local saves")
    machine.kill_all()
    local = max(int(one.parent.name.split("-")[1]) for one in newest.glob("step-*/COMPLETE"))
    lab.fault = lambda _request: None
    machine.env["STEPS"] = str(local)

    machine.run_to_end()

    assert lab.attempts()[1]["resume_step"] == local


def test_retention_keeps_the_newest_complete_ones(lab: AgentLab) -> None:
    """Older checkpoints go, manifest first; the newest two stay whole."""
    lab.machine(_STEPS=80, _EACH_COMMITTED=1, CHECKPOINT_KEEP=2).run_to_end()

    steps = sorted({name.split("/")[1] for name in lab.names("checkpoints/")})
    assert steps[-1] == "00000080"
    # The end of the job may cut a removal short: that checkpoint has no manifest any more.
    whole = [name.split("/")[1] for name in lab.manifests()]
    assert len(whole) == 2
    assert whole in (steps, steps[1:])
    removed = [line for line in lab.writes if line.startswith("DELETE")]
    assert removed
    by_step: dict[str, list[str]] = {}
    for line in removed:
        by_step.setdefault(line.split("checkpoints%2F")[1][:8], []).append(line)
    assert all("manifest.json" in lines[0] for lines in by_step.values())


def test_the_last_save_of_a_done_job_removes_an_old_one_too(lab: AgentLab) -> None:
    """It is committed at the end, outside of the loop that commits and removes while the job runs."""
    for incarnation, steps in enumerate((10, 20, 30), 1):
        machine = lab.machine(
            f"m{incarnation}", INCARNATION=incarnation, HEARTBEAT_SECONDS=30, CHECKPOINT_KEEP=2, TARGET_STEPS=steps,
            _STEPS=steps, _STEP_SECONDS=0.01,
        )  # fmt: skip
        assert machine.run_to_end().heartbeat()["phase"] == "done"
    assert [name.split("/")[1] for name in lab.manifests()] == ["00000020", "00000030"]


def test_framework_that_writes_to_the_bucket_is_only_read(lab: AgentLab) -> None:
    """With orbax in the bucket, a step counts once it has commit_success.txt; nothing is uploaded or restored."""
    lab.put("checkpoints/40/default/array", b"x")
    lab.put("checkpoints/40/commit_success.txt", b"ok")
    lab.put("checkpoints/50/default/array", b"x")
    machine = lab.machine(
        CHECKPOINT_FORMAT="orbax",
        CHECKPOINT_DIR="gs://lab-bucket/checkpoints",
        COMMAND='echo "resume=$TPUCTL_RESUME_STEP dir=$TPUCTL_CHECKPOINT_DIR"',
    ).run_to_end()

    assert machine.heartbeat()["resumed_from"] == 40
    assert "resume=40 dir=gs://lab-bucket/checkpoints" in lab.log()
    assert not [line for line in lab.writes if "checkpoints" in line]


def test_slice_of_another_size_is_refused_with_the_reason(lab: AgentLab) -> None:
    """A checkpoint of one worker is not guessed to fit two."""
    lab.machine("m0", _STEPS=10).run_to_end()
    machine = lab.machine("m1", INCARNATION=2, WORKERS=2, FAILURES=1).run_to_end()

    assert machine.heartbeat()["phase"] == "failed"
    assert "was saved by 1 workers, this slice has 2" in machine.heartbeat()["message"]


def test_log_is_copied_in_segments(lab: AgentLab) -> None:
    """Every line of the job reaches the bucket once, in order, over several segments."""
    code = "import sys\nfor n in range(20000): print('line', n, 'x' * 30)"
    machine = lab.machine(
        BUNDLE=lab.put_bundle({"talk.py": code.encode()}), COMMAND=f"{sys.executable} talk.py"
    )
    machine.run_to_end()

    lines = [line for line in lab.log().splitlines() if line.startswith("line")]
    assert [int(line.split()[1]) for line in lines] == list(range(20000))
    assert len(lab.names("logs/g1/w0/")) > 2
    assert Path(machine.root / "log" / "job.log").read_text().count("line 19999 ") == 1
