"""A bucket full of what a machine can have made up: commands end in their own words, `down` leaves nothing."""

import contextlib
import json
import random

import pytest

from orchestrator.cli.views.job_progress import WORDS
from orchestrator.contract.phase import Phase
from orchestrator.emulator.state.storage.refusals import StorageError
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User
from tests.security.test_forgeries import WHOLE as REPORT
from tests.security.test_manifests import UNCOMMITTED, WHOLE

NAMES = [
    "weights",
    "\u202e",
    "x" * 300,
    "../../x",
    "a/b",
    "%00",
    "\u00e9" * 50,
    " ",
    "-rf",
    "a\\b",
    "\x85",
    "x/",
]
VALUES = [
    None, True, -1, 0, 1, 1 << 53, 10**400, 1e308, "x", [], {}, [1], {"a": 1}, "\ud800",
    "\x1b[2J\nnext: run x",
]  # fmt: skip
BYTES = [
    b"", b"\xff\xfe", b"[" * 5000, b"loss: 1e999 step 5\n" * 50, b"\x1b]52;c;aGk=\x07\n", b"x" * 1_100_000,
    b"step 99999999999999999999999 loss nan\n", b'model_checkpoint_path: "../../x"\n', b'{"epoch": 1e999}',
]  # fmt: skip
SAVES = [
    "step_{}", "global_step{}", "checkpoint-{}/x", "epoch={}.ckpt", "model_{}.pt", "{}/_CHECKPOINT_METADATA",
    "{}/commit_success.txt", "ckpt-{}.index", "ckpt-{}.data-00000-of-00001", "step-{}/COMPLETE", "checkpoint",
    "latest", "metadata.json", ".metadata", "trainer_state.json", "last.ckpt",
]  # fmt: skip
COMMANDS = [
    "status", "status --json", "explain", "logs", "logs --all-workers", "checkpoints", "checkpoints --json",
    "cost", "report -o {}/report.html", "fetch -o {}/model", "fetch --uncommitted -o {}/rest",
    "support --yes -o {}/support.zip", "watch", "status",
]  # fmt: skip


def forged(choose):
    """Yield names of objects that a machine may write, each with what is no such thing, or nearly one."""
    for _ in range(30):
        step, number = choose([0, 20, 10**14, 10**15 - 1]), choose([0, 1, 2, 999_999_999])
        worker, value = choose([0, 1, 4095, 9999]), choose(VALUES)
        place = {"step": step, "incarnation": number, "worker": worker, "workers": worker + 1}
        for whole, name in (
            (WHOLE, f"checkpoints/{step:08d}"),
            (UNCOMMITTED, "uncommitted"),
            (REPORT, ".tpuctl/heartbeat"),
        ):
            body = {**whole, **{key: place[key] for key in place if key in whole}, choose(list(whole)): value}
            data = choose([json.dumps(body).encode(), choose(BYTES)])
            report = name.startswith(".tpuctl")
            yield f"{name}/{number}/{worker}" if report else f"{name}/g{number}/w{worker}.manifest.json", data
            yield f"{name}/g{number}/w{worker}/{choose(NAMES)}", choose(BYTES)
        yield f"checkpoints/{choose(SAVES).format(choose([1, 40, 10**18, 10**30]))}", choose(BYTES)
        yield f"logs/g{number}/w{worker}/{choose([1, 10**12]):06d}.log", choose(BYTES)
        yield (
            f".tpuctl/gang/{choose([1, 2, 10**9, 10**30])}/{choose(['000001.json', 'verdict'])}",
            choose(BYTES),
        )
        yield f".tpuctl/claim/{choose([1, 2, 10**30])}", json.dumps({"incarnation": value}).encode()
        yield f"{choose(['.tpuctl/wake', 'tensorboard', 'outputs'])}/{choose(NAMES)}", choose(BYTES)


@pytest.mark.parametrize(("seed", "folder"), [(1, "bucket"), (2, "local")])
def test_no_command_trips_over_what_machines_write(tmp_path, seed, folder):
    """No bug of ours, nothing that steers the terminal, no line that could pass for one of ours."""
    more = {"job__checkpoint": {"dir": "bucket", "format": "auto"}} if folder == "bucket" else {}
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud, job__target_steps=400, **more)
        user.up()
        for name, data in forged(random.Random(seed).choice):
            with contextlib.suppress(StorageError):
                cloud.put_object(name, data)
        for words in (*COMMANDS, "down --yes"):
            said = user.watch(180) if words == "watch" else user.run(*words.format(tmp_path).split())
            shown = said.out + said.err
            assert "this is a bug" not in shown, (words, shown[-700:])
            assert "could not be shown" not in shown, words
            steers = [text for text in ("\x1b[2J", "\x1b]52", "\u202e", "\x85") if text in shown]
            assert not steers, (words, steers)
            assert not [line for line in shown.splitlines() if line.startswith("next: run x")], words
        assert said.code == 0, said.err
        assert cloud.nodes() == {}


def test_every_phase_has_words():
    """That of a report which nobody can read too: `watch` draws it as any other."""
    assert set(WORDS) == set(Phase)
