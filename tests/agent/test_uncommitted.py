"""What no checkpoint contains is in the bucket before its machine goes: after the end, a failure and a notice."""

import hashlib
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.checkpoints.uncommitted import find_uncommitted, stray_in
from orchestrator.contract.bucket.uncommitted_manifest import (
    RescueMoment,
    UncommittedFile,
    UncommittedManifest,
    ended_before,
    outputs_before,
    parse,
)
from tests.agent.agent_lab import AgentLab, AgentMachine

FLAT = """\
import os, sys, time
from pathlib import Path
out = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
out.mkdir(parents=True, exist_ok=True)
(out / "latest.npz").write_bytes(b"latest" * 100)
time.sleep(0.05)
(out / "sub").mkdir(exist_ok=True)
(out / "sub" / "final.npz").write_bytes(b"final" * 100)
time.sleep(float(os.environ.get("STAYS", "0")))
sys.exit(int(os.environ.get("STATUS", "0")))
"""


def flat(lab: AgentLab, name: str = "m0", script: str = FLAT, **changes: object) -> AgentMachine:
    """Return a machine whose job saves under names that no format takes."""
    code = lab.put_bundle({"train.py": script.encode()})
    return lab.machine(name, BUNDLE=code, JOB_DIGEST="d1", **changes)


def retained(lab: AgentLab, incarnation: int = 1, worker: int = 0) -> dict[str, bytes]:
    """Return the files that the manifest names, each held against its sha256."""
    name = f"unclaimed/g{incarnation}/w{worker}.manifest.json"
    if name not in lab.names("unclaimed/"):
        return {}
    found = {}
    for one in parse(lab.read(name), name).files:
        found[one.name] = lab.read(one.object)
        assert hashlib.sha256(found[one.name]).hexdigest() == one.sha256
    return found


def test_status_zero_without_a_commit_brings_the_folder_and_is_not_done(lab: AgentLab) -> None:
    """The whole folder is in the bucket before the phase is reported; the job runs once only."""
    machine = flat(lab, TARGET_STEPS=40).run_to_end()

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["attempts"], heartbeat["uncommitted_files"]) == (
        "uncommitted",
        1,
        2,
    )
    assert (heartbeat["uncommitted"], heartbeat["uncommitted_place"]) == ("sub/final.npz", "checkpoints")
    assert heartbeat["uncommitted_complete"] is True
    assert retained(lab) == {
        "checkpoints/latest.npz": b"latest" * 100, "checkpoints/sub/final.npz": b"final" * 100,
    }  # fmt: skip
    assert (machine.root / "state" / "stop").exists()
    last = {write: number for number, write in enumerate(lab.writes)}
    reported = max(number for write, number in last.items() if write.startswith("POST .tpuctl/wake"))
    assert last["POST unclaimed/g1/w0.manifest.json"] < reported, (
        "after that report the machine may be deleted"
    )


def test_a_job_that_saved_nothing_is_not_done_either(lab: AgentLab) -> None:
    """Nothing was saved anywhere: the manifest is empty, and nobody claims a model."""
    machine = flat(lab, script="print('trained, and forgot to save')\n").run_to_end()

    assert machine.heartbeat()["phase"] == "uncommitted"
    assert machine.heartbeat()["uncommitted_files"] == 0
    assert "no file was found" in machine.heartbeat()["message"]


def test_saves_in_the_working_folder_are_brought_and_nothing_else_of_it(lab: AgentLab) -> None:
    """The default of nanoGPT is out/ckpt.pt beside the script; code, data and files of before the start stay."""
    script = (
        "from pathlib import Path\nPath('out').mkdir()\nPath('out/ckpt.pt').write_bytes(b'model')\n"
        "Path('out/log.txt').write_text('x')\nPath('.cache').mkdir()\nPath('.cache/a.pt').write_text('x')\n"
    )
    code = lab.put_bundle({"train.py": script.encode(), "pretrained.pt": b"from the bundle"})
    setup = 'touch -d "1 hour ago" pretrained.pt'

    machine = lab.machine(BUNDLE=code, SETUP=setup).run_to_end()

    assert retained(lab) == {"work/out/ckpt.pt": b"model"}
    assert machine.heartbeat()["uncommitted_place"] == "work"


def test_a_file_beside_committed_checkpoints_is_brought_and_the_job_is_done(lab: AgentLab) -> None:
    """The steps of the format are not brought a second time, old ones neither."""
    script = (Path(__file__).with_name("train_script.py")).read_text()
    machine = flat(lab, script=f"{script}\n(FOLDER / 'final.npz').write_bytes(b'final')\n").run_to_end()

    assert machine.heartbeat()["phase"] == "done"
    assert machine.heartbeat()["committed_step"] == 40
    assert retained(lab) == {"checkpoints/final.npz": b"final"}
    assert "; 1 of its files is in unclaimed/ beside its checkpoints" in machine.heartbeat()["message"]


def test_a_job_that_is_given_up_leaves_its_files(lab: AgentLab) -> None:
    """The failure is reported when they are in the bucket."""
    machine = flat(lab, _STATUS=3, FAILURES=2).run_to_end()

    assert machine.heartbeat()["phase"] == "failed"
    assert machine.heartbeat()["attempts"] == 2
    assert set(retained(lab)) == {"checkpoints/latest.npz", "checkpoints/sub/final.npz"}


def test_a_notice_brings_the_newest_files(lab: AgentLab) -> None:
    """The job has no checkpoint: what lies there when the machine is taken away comes to the bucket."""
    machine = flat(lab, _STAYS=600, GRACE_SECONDS=1).start()
    machine.until((machine.root / "checkpoints/sub/final.npz").exists, "its saves")
    machine.until(lambda: machine.heartbeat().get("phase") == "run", "phase run")
    lab.metadata.preempted.set()
    assert machine.wait() == 0

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["preempted"], heartbeat["uncommitted_complete"]) == (
        "stopped",
        True,
        True,
    )
    assert set(retained(lab)) == {"checkpoints/latest.npz", "checkpoints/sub/final.npz"}


@pytest.mark.parametrize("name", ["ckpt.pt", "out_5.json"])
def test_a_running_job_names_a_save_that_nothing_commits(name: str, lab: AgentLab) -> None:
    """The heartbeat holds the file's name, whatever it is called; a commit takes it away again."""
    script = (
        "import os, time\nfrom pathlib import Path\nout = Path(os.environ['TPUCTL_CHECKPOINT_DIR'])\n"
        "out.mkdir(exist_ok=True)\n(out / 'config.json').write_text('{}')\n(out / 'log.txt').write_text('x')\n"
        f"(out / {name!r}).write_text('x')\nsign = out.parent / 'sign'\n"
        "while not sign.exists():\n    time.sleep(0.05)\n"
        "(out / 'step-1').mkdir()\n(out / 'step-1' / 'COMPLETE').write_text('')\ntime.sleep(600)\n"
    )
    machine = flat(lab, script=script).start()
    machine.until(lambda: machine.heartbeat().get("uncommitted") == name, "the name")
    assert machine.heartbeat()["uncommitted_place"] == "checkpoints"

    (machine.root / "sign").write_text("")
    machine.until_committed(1)
    machine.until(lambda: machine.heartbeat().get("uncommitted") == "", "no name")


def test_a_killed_agent_goes_on_and_sends_nothing_twice(lab: AgentLab) -> None:
    """Killed between two files: the next agent starts no job, and sends only what is not there."""
    observed: list[str] = []

    def one_only(request: object) -> None:
        name = str(getattr(request, "query", {}).get("name") or "")
        if getattr(request, "method", "") == "POST" and name.startswith("unclaimed/g1/w0/"):
            observed.append(name)
            if name.endswith("9.npz") and len([one for one in observed if one == name]) == 1:
                machine.process.kill()  # type: ignore[union-attr]

    lab.fault = one_only  # type: ignore[assignment]
    script = (
        "import os\nfrom pathlib import Path\nout = Path(os.environ['TPUCTL_CHECKPOINT_DIR'])\n"
        "out.mkdir(exist_ok=True)\n"
        "for n in range(16):\n"
        "    (out / f'{n}.npz').write_bytes(bytes([n]) * 50)\n    os.utime(out / f'{n}.npz', (n, n))\n"
    )
    machine = flat(lab, script=script).start()
    machine.wait()
    machine.run_to_end()

    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["attempts"], len(retained(lab))) == ("uncommitted", 1, 16)
    early = {f"unclaimed/g1/w0/checkpoints/{n}.npz" for n in (15, 14, 13, 12)}
    assert [observed.count(name) for name in early] == [1] * 4, "the first batch was in a manifest"


def test_a_new_machine_learns_that_the_job_had_ended(lab: AgentLab) -> None:
    """The machine went after its files were in the bucket and before the report of it: nothing is trained again."""
    first = flat(lab).run_to_end()
    code = first.env["TPUCTL_BUNDLE"]

    second = lab.machine("m1", INCARNATION=2, BUNDLE=code, JOB_DIGEST="d1").run_to_end()
    assert (second.heartbeat()["phase"], second.heartbeat()["attempts"]) == ("uncommitted", 0)
    assert second.heartbeat()["uncommitted_files"] == 2

    other = lab.machine("m2", INCARNATION=3, BUNDLE=code, JOB_DIGEST="d2").run_to_end()
    assert other.heartbeat()["attempts"] == 1, "other settings are another job"
    assert len(retained(lab, 3)) == 2
    assert not list(lab.names("unclaimed/g3/w0/")), "the same bytes lie there already"


def test_every_worker_brings_its_own(lab: AgentLab) -> None:
    """A checkpoint of which one worker has no part is none: both say so, and both bring what they have."""
    script = (
        "import os\nfrom pathlib import Path\nout = Path(os.environ['TPUCTL_CHECKPOINT_DIR'])\n"
        "out.mkdir(exist_ok=True)\n"
        "if os.environ['TPUCTL_WORKER_ID'] == '0':\n"
        "    (out / 'step-1').mkdir()\n    (out / 'step-1' / 'COMPLETE').write_text('')\n"
        "(out / 'rank.npz').write_text(os.environ['TPUCTL_WORKER_ID'])\n"
    )
    workers = [flat(lab, f"w{n}", script, WORKER_ID=n, WORKERS=2).start() for n in (0, 1)]

    assert [one.wait() for one in workers] == [0, 0]
    assert [one.heartbeat()["phase"] for one in workers] == ["uncommitted", "uncommitted"]
    assert retained(lab, worker=0).keys() == {"checkpoints/rank.npz", "checkpoints/step-1/COMPLETE"}
    assert retained(lab, worker=1) == {"checkpoints/rank.npz": b"1"}


def test_links_and_special_files_are_named_and_not_followed(lab: AgentLab) -> None:
    """A link may lead anywhere, and a pipe never ends."""
    script = (
        "import os\nout = os.environ['TPUCTL_CHECKPOINT_DIR']\nos.makedirs(out, exist_ok=True)\n"
        "os.symlink('/etc/hostname', out + '/link.pt')\nos.mkfifo(out + '/pipe.pt')\n"
        "os.symlink('/etc', out + '/folder')\nopen(out + '/a.pt', 'w').write('a')\n"
    )
    flat(lab, script=script).run_to_end()

    body = json.loads(lab.read("unclaimed/g1/w0.manifest.json"))
    assert [one["name"] for one in body["files"]] == ["checkpoints/a.pt"]
    assert {one["name"]: one["why"] for one in body["skipped"]} == {
        "checkpoints/link.pt": "symlink", "checkpoints/pipe.pt": "special", "checkpoints/folder": "symlink",
    }  # fmt: skip


def test_outputs_are_committed_when_the_job_has_ended(lab: AgentLab) -> None:
    """A job without steps is done when its files are in the bucket, as one checkpoint."""
    script = (
        "import os\nfrom pathlib import Path\nout = Path(os.environ['TPUCTL_CHECKPOINT_DIR'])\n"
        "(out / 'deep').mkdir(parents=True, exist_ok=True)\n(out / 'score.json').write_text('1')\n"
        "(out / 'deep' / 'table.csv').write_text('a,b')\n"
    )
    machine = flat(lab, script=script, CHECKPOINT_FORMAT="outputs").run_to_end()

    assert (machine.heartbeat()["phase"], machine.heartbeat()["committed_step"]) == ("done", 1)
    assert lab.manifests() == ["checkpoints/00000001/g1/w0.manifest.json"]
    assert lab.read("checkpoints/00000001/g1/w0/deep/table.csv") == b"a,b"
    assert lab.names("unclaimed/") == []


def test_outputs_of_a_job_that_fails_or_writes_nothing_are_not_done(lab: AgentLab) -> None:
    """Half the outputs are no outputs; no file at all is no proof of anything."""
    failed = flat(lab, CHECKPOINT_FORMAT="outputs", _STATUS=1, FAILURES=1).run_to_end()
    assert failed.heartbeat()["phase"] == "failed"
    assert lab.manifests() == []

    empty = flat(lab, "m1", "print('score 1')\n", INCARNATION=2, CHECKPOINT_FORMAT="outputs").run_to_end()
    assert empty.heartbeat()["phase"] == "uncommitted"


def test_outputs_go_on_from_what_the_last_machine_had(lab: AgentLab) -> None:
    """A preemption brings what is there; the next machine gets it back before its start."""
    script = (
        "import os, time\nfrom pathlib import Path\nout = Path(os.environ['TPUCTL_CHECKPOINT_DIR'])\n"
        "out.mkdir(parents=True, exist_ok=True)\npart = out / 'part-1.csv'\n"
        "print('found', part.exists(), flush=True)\n"
        "if not part.exists():\n    part.write_text('1')\n    time.sleep(600)\n"
        "(out / 'part-2.csv').write_text('2')\n"
    )
    code = lab.put_bundle({"train.py": script.encode()})
    job = {"BUNDLE": code, "JOB_DIGEST": "d1", "CHECKPOINT_FORMAT": "outputs", "GRACE_SECONDS": 1}
    first = lab.machine(**job).start()
    first.until((first.root / "checkpoints/part-1.csv").exists, "a part")
    first.until(lambda: first.heartbeat().get("phase") == "run", "phase run")
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGTERM)
    assert first.wait() == 0

    second = lab.machine("m1", INCARNATION=2, **job).run_to_end()

    assert (second.heartbeat()["phase"], second.heartbeat()["attempts"]) == ("done", 1)
    assert "found True" in lab.log(2)
    assert lab.read("checkpoints/00000002/g2/w0/part-1.csv") == b"1"


@pytest.mark.parametrize(("bundle", "settings", "found"), [("b", "s", 1), ("c", "s", 0), ("b", "", 0)])
def test_only_the_very_same_job_had_ended_before(bundle: str, settings: str, found: int) -> None:
    """New code or new settings are a new job; without a digest the difference cannot be detected."""
    body = {
        "schema": 1, "incarnation": 1, "worker": 0, "workers": 1, "attempt": 1, "bundle": "b",
        "settings": settings, "format": "marker", "why": "ended", "complete": True, "files": [],
        "skipped": [], "at": 1.0,
    }  # fmt: skip
    one = parse(json.dumps(body).encode(), "m")
    assert len(ended_before([one], 2, bundle, settings)) == found
    assert ended_before([one], 1, "b", settings) == ()


def test_a_save_that_no_job_can_resume_from_is_reported_as_that(lab: AgentLab) -> None:
    """The Trainer with save_only_model: the layout is known, and it is not the format that is to blame."""
    script = (
        "import os\nfrom pathlib import Path\n"
        "out = Path(os.environ['TPUCTL_CHECKPOINT_DIR']) / 'checkpoint-20'\nout.mkdir(parents=True)\n"
        'head = b\'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}\'\n'
        "(out / 'model.safetensors').write_bytes(len(head).to_bytes(8, 'little') + head + b'x')\n"
        "(out / 'trainer_state.json').write_text('{\"global_step\": 20, \"max_steps\": 20}')\n"
    )
    machine = flat(lab, script=script, CHECKPOINT_FORMAT="auto").run_to_end()
    heartbeat = machine.heartbeat()
    assert (heartbeat["phase"], heartbeat["uncommitted_state"]) == ("uncommitted", "not resumable")
    assert "checkpoints/checkpoint-20/model.safetensors" in retained(lab)


def brought(incarnation: int, *names: str, complete: bool = True, **changes: Any) -> UncommittedManifest:
    """Return the manifest of outputs that were brought at a notice; each object is called after its machine."""
    files = tuple(UncommittedFile(name, 1, "0" * 64, f"g{incarnation}/{name}") for name in names)
    one = UncommittedManifest(
        incarnation, 0, 1, 1, "b", "s", "outputs", RescueMoment.NOTICE, complete, files, (), 1.0
    )
    return replace(one, **changes)


@pytest.mark.parametrize(
    ("manifests", "objects"),
    [
        ([brought(1, "a", "b")], ["g1/a", "g1/b"]),
        ([brought(1, "a", "b"), brought(2, "b", "c", complete=False)], ["g1/a", "g2/b", "g2/c"]),
        ([brought(1, "a", complete=False)], ["g1/a"]),
        ([brought(1, "a", "b"), brought(2, "b")], ["g2/b"]),
        ([brought(1, "a"), brought(2, "b", bundle="new")], []),
        ([brought(1, "a"), brought(2, "b", moment=RescueMoment.FAILED)], []),
        ([brought(1, "a", worker=1), brought(3, "b")], []),
        ([brought(1, "a", settings="")], []),
    ],
    ids=["whole", "cut short", "only a part", "newer", "other code", "failed", "others", "of nobody"],
)
def test_outputs_come_back_from_the_newest_whole_rescue_and_what_came_after(
    manifests: list[UncommittedManifest], objects: list[str]
) -> None:
    """A machine that had no time for all of its files costs none of those that an earlier one has brought."""
    found = outputs_before(manifests, 0, 3, ("b", manifests[0].settings, 1))
    assert sorted(retained.object for retained in found.values()) == objects


def test_what_a_commit_contains_is_not_uncommitted(lab: AgentLab) -> None:
    """Steps up to the newest commit are in the bucket or were removed as old; a later or torn one is brought."""
    machine = lab.machine()
    context = machine.context()
    for step, last in ((10, "COMPLETE"), (20, "COMPLETE"), (25, "shard"), (30, "COMPLETE")):
        folder = context.local.folder / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / last).write_text("x")
    (context.local.folder / "notes.txt").write_text("x")

    def remaining(committed: int | None) -> set[str]:
        return {
            one.relative for one in find_uncommitted(context.settings, context.local, committed, 0.0, "")[0]
        }

    both = {"notes.txt", "step-25/shard"}
    assert remaining(20) == both | {"step-30/COMPLETE"}
    assert remaining(30) == both
    assert remaining(None) == both | {"step-10/COMPLETE", "step-20/COMPLETE", "step-30/COMPLETE"}


TO_THE_BUCKET = """
import os, urllib.request
name = f"b/{os.environ['TPUCTL_BUCKET']}/o?uploadType=media&name=runs/a/ckpt_5.npz"
host = os.environ["STORAGE_EMULATOR_HOST"]
urllib.request.urlopen(urllib.request.Request(f"{host}/upload/storage/v1/{name}", b"x", method="POST")).read()
"""


def test_a_job_that_saved_to_the_bucket_has_not_saved_nothing(lab: AgentLab) -> None:
    """Its end names the object, though it came after the last look of the running job."""
    machine = flat(lab, script=TO_THE_BUCKET).run_to_end()

    heartbeat = machine.heartbeat()
    assert heartbeat["phase"] == "uncommitted"
    assert (heartbeat["uncommitted"], heartbeat["uncommitted_place"]) == ("runs/a/ckpt_5.npz", "bucket")


def test_a_save_in_another_folder_of_the_bucket_is_named(lab: AgentLab) -> None:
    """A program that writes to gs:// by itself has saved something: nobody may say that it has not."""
    machine = lab.machine("m1")
    bucket = machine.context().bucket
    for name in ("bundles/model.pt", "tensorboard/model.pt", "runs/a/readme.txt"):
        lab.put(name, b"x")
    assert stray_in(bucket, 1.0) == ""
    lab.put("runs/a/ckpt_5.npz", b"x")
    assert stray_in(bucket, 1.0) == "runs/a/ckpt_5.npz"
    assert stray_in(bucket, time.time() + 3600) == ""
    assert stray_in(bucket, 0.0) == "", "a job that has not been started has saved nothing"
