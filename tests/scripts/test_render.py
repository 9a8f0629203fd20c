"""Rendered scripts: what goes in comes out, nothing else runs, and a machine boots with them."""

import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.domain.spec import CheckpointSpec, JupyterSpec, SidecarsSpec, TensorboardSpec
from orchestrator.engine.reconcile.deliver import START_TIMEOUT
from orchestrator.errors import UsageError
from orchestrator.scripts.render import (
    RAW_NAMES,
    _check_raw,
    _environment,
    bash_word,
    loop_script,
    machine_scripts,
    stop_seconds,
)
from orchestrator.scripts.shipped import begin_script
from tests.scripts.render_kit import a_job_spec, a_target

SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


VARIANTS = {
    "tpu": (a_job_spec(), a_target()),
    "tpu without job": (a_job_spec(run_on="vm"), a_target(runs_job=False)),
    "vm with job": (a_job_spec(run_on="vm"), a_target(role="vm", tpu_address="10.0.0.2")),
    "vm without job": (a_job_spec(), a_target(role="vm", runs_job=False)),
    "sidecars": (
        dataclasses.replace(
            a_job_spec(), sidecars=SidecarsSpec(TensorboardSpec(logdir="it's"), JupyterSpec())
        ),
        a_target(role="vm", runs_job=False),
    ),
    "bucket": (a_job_spec(checkpoint=CheckpointSpec("orbax", "bucket")), a_target()),
    "path": (a_job_spec(checkpoint=CheckpointSpec(dir="/data/it's here")), a_target()),
    "setup and env": (
        a_job_spec(setup="pip install 'x' && echo \\", env={"A": "$(id) `id` 'q'"}),
        a_target(),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendered_scripts_are_clean(variant, tmp_path):
    """Every script of every variant passes `bash -n` and shellcheck."""
    scripts = machine_scripts(*VARIANTS[variant])
    begin = {}
    if variant == "tpu":
        begin["loop"] = loop_script(
            fleet=0, wheel="x.whl", lock="x.lock", cloud="gcp", project="it's", deployment="d", ssh_port=22
        )
    for field, text in {**dataclasses.asdict(scripts), **begin}.items():
        if field == "cron":
            continue
        path = tmp_path / field
        path.write_text(text)
        subprocess.run(["bash", "-n", path], check=True)
        if SHELLCHECK is None:
            pytest.skip("shellcheck is not installed")
        done = subprocess.run([SHELLCHECK, "-s", "bash", path], capture_output=True, text=True, check=False)
        assert done.stdout == ""


NASTY = [
    "", " ", "'", '"', "\\", "\\'", "''", "$", "$HOME", "$(touch C)", "`touch C`", "${x:-$(touch C)}",
    "'; touch C #", '"; touch C #', "' && touch C && '", "'\"'\"'; touch C #", "a\nb", "\n", "\n\n",
    "\r", "a\r\nb", "-n", "--help", "-", "~", "*", "?", "[a-z]", "{a,b}", "!", "!!", "#", "# x", "&",
    "| touch C", "> C", ">C\n", "<(touch C)", "%", "%s%n", "\t", "\x01", "\x7f", "\x1b[31m", "a=b", "=",
    ":", "日本語", "한국어", "é", "🙂", "\u2028", "\u202e", "END\n", "EOF\ntouch C\nEOF", "{{ 7*7 }}",
    "{% raw %}", "{# x #}", "{{ ''.__class__ }}", "\\n", "\\0", "$'\\n'", "$((1+1))", "@ROOT@",
    "trailing\n", "trailing\\", "trailing\\\n", "\ntouch C\n", ";touch C", "\ufeff", "${IFS}", "$@",
    "$*", "$$", "$0", "a" * 3000, "'" * 999,
]  # fmt: skip


def hostile_strings(count: int) -> list[str]:
    """Return NASTY and seeded mixtures of its pieces."""
    rng = random.Random(7)
    mixtures = ["".join(rng.choices(NASTY[:70], k=rng.randint(2, 6))) for _ in range(count - len(NASTY))]
    return NASTY + mixtures


def sourced(text: str, folder: Path, **environment: str) -> dict[str, str]:
    """Return the exported variables that bash has after sourcing *text* as run-job does."""
    (folder / "job.env").write_bytes(text.encode())
    done = subprocess.run(
        ["bash", "-c", "set -a; . ./job.env; set +a; exec env -0"],
        cwd=folder, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stderr == b""
    pairs = (item.split("=", 1) for item in done.stdout.decode().split("\0") if item)
    return dict(pairs)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_environment_values_survive_bash(locale, tmp_path):
    """Hundreds of hostile values come out of job.env as they went in, and nothing runs."""
    values = {f"E{index}": text for index, text in enumerate(hostile_strings(500))}
    observed = sourced(machine_scripts(a_job_spec(env=values), a_target()).job_env, tmp_path, LC_ALL=locale)
    assert {key: observed.get(key) for key in values} == values
    assert [path.name for path in tmp_path.iterdir()] == ["job.env"]


@pytest.mark.parametrize("start", range(0, len(NASTY), 20))
def test_every_free_text_survives_bash(start, tmp_path):
    """Command, setup, names and paths come out as they went in, for each hostile string."""
    for text in NASTY[start : start + 20]:
        spec = a_job_spec(
            name=text, command=text, setup=text, checkpoint=CheckpointSpec(dir="/" + text, marker=text)
        )
        target = a_target(project=text, bucket=text, node=text, zone=text, role="vm", tpu_address=text)
        spec = dataclasses.replace(spec, job=dataclasses.replace(spec.job, run_on="vm"))
        observed = sourced(machine_scripts(spec, target).job_env, tmp_path)
        keys = ["COMMAND", "SETUP", "DEPLOYMENT", "PROJECT", "BUCKET", "CHECKPOINT_MARKER"]
        assert {observed[f"TPUCTL_{key}"] for key in keys} | {observed["TPUCTL_NODE"], observed["ZONE"]} == {
            text
        }
        assert observed["TPUCTL_CHECKPOINT_DIR"] == "/" + text
        assert observed.get("XRT_TPU_CONFIG") == (f"tpu_worker;0;{text}:8470" if text else None)
    assert [path.name for path in tmp_path.iterdir()] == ["job.env"]


@pytest.mark.parametrize(("run_on", "expected"), [("tpu", "local"), ("vm", "t-1")])
def test_on_a_tpu_the_tpu_is_local(run_on, expected, tmp_path):
    """TensorFlow's resolver asks Google's API for any other name; from a VM it has to."""
    target = a_target(node="t-1", role=run_on, tpu_address="10.0.0.2")
    observed = sourced(machine_scripts(a_job_spec(run_on=run_on), target).job_env, tmp_path)
    assert observed["TPU_NAME"] == expected


def test_a_command_of_64_kib_survives(tmp_path):
    """A very long command is whole, and the startup script still fits into metadata."""
    command = ("echo 'x' \"$y\"; # " * 4096)[: 64 * 1024]
    scripts = machine_scripts(a_job_spec(command=command), a_target())
    assert sourced(scripts.job_env, tmp_path)["TPUCTL_COMMAND"] == command
    assert len(scripts.startup.encode()) <= 256 * 1024


@pytest.mark.parametrize(
    ("job", "where", "why"),
    [
        ({"command": "a\0b"}, "job.command", "NUL"),
        ({"setup": "\0"}, "job.setup", "NUL"),
        ({"checkpoint": CheckpointSpec(dir="/a\0")}, "job.checkpoint.dir", "NUL"),
        ({"env": {"A": "x\0"}}, "job.env.A", "NUL"),
        ({"env": {"A": "\ud800"}}, "job.env.A", "surrogate"),
        ({"env": {"A B": "x"}}, "job.env.'A B'", "not a name"),
        ({"env": {"A=$(id)": "x"}}, "job.env", "not a name"),
        ({"env": {"A\n": "x"}}, "job.env", "not a name"),
        ({"env": {"UID": "0"}}, "job.env.'UID'", "bash sets"),
        ({"env": {"TPUCTL_ROOT": "/"}}, "job.env.'TPUCTL_ROOT'", "tpuctl sets"),
        ({"command": "x" * 130_000}, "job.command", "too long"),
        ({"env": {f"A{index}": "x" * 100_000 for index in range(3)}}, "job", "262,144"),
    ],
)
def test_what_cannot_reach_the_machine_is_refused(job, where, why):
    """A value that bash or metadata cannot carry is one clear error that names its key."""
    with pytest.raises(UsageError) as caught:
        machine_scripts(a_job_spec(**job), a_target())
    assert caught.value.message.startswith(where)
    assert why in caught.value.message
    assert caught.value.hint


def test_bash_word_refuses_nul():
    """The quoting itself is the last line of defence."""
    with pytest.raises(UsageError):
        bash_word("\0")


def test_raw_is_for_allowed_names_only():
    """A template that turns quoting off for any other value does not load."""
    for source in ("{{ command | raw }}", "{{ (job_env ~ command) | raw }}", "{{ spec.name | raw }}"):
        with pytest.raises(ValueError, match="raw is allowed"):
            _check_raw(_environment(), "bad.j2", source)
    for name in RAW_NAMES:
        _check_raw(_environment(), "good.j2", f"{{{{ {name} | raw }}}}")


def test_checkpoint_folder_follows_the_root(tmp_path):
    """Local checkpoints lie below the machine's own folder, bucket checkpoints in the bucket."""
    places = {
        "local": "/r/checkpoints",
        "out dir": "/r/out dir",
        "/data/x": "/data/x",
        "bucket": "gs://bucket/checkpoints",
    }
    for folder, expected in places.items():
        text = machine_scripts(a_job_spec(checkpoint=CheckpointSpec(dir=folder)), a_target()).job_env
        assert sourced(text, tmp_path, TPUCTL_ROOT="/r")["TPUCTL_CHECKPOINT_DIR"] == expected


def test_the_link_waits_longer_than_the_script_that_restarts_a_job():
    """A job with a long grace is stopped by `start-job --restart`; SSH must not give up on it before."""
    for grace in (None, 30.0, 600.0):
        spec = a_job_spec(grace=grace)
        assert stop_seconds(spec) >= (grace or 0) + 20
        waits = int(re.search(r"within (\d+) s", begin_script(restart=True).text)[1])
        assert START_TIMEOUT + stop_seconds(spec) > waits + stop_seconds(spec) + 5
