"""What others use in their CI: the action's steps, the hook of pre-commit, and the Dockerfile."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.cli.cli_kit import ROOT, environment

ACTION = ROOT / ".github/actions/tpuctl"
STEPS = {
    step["name"]: step
    for step in YAML(typ="safe").load((ACTION / "action.yml").read_text())["runs"]["steps"] if "run" in step
}  # fmt: skip
DOCKER = ROOT / "examples/docker/Dockerfile"
GH = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case "$*" in *--paginate*) cat "$KNOWN";; esac
"""


@pytest.fixture
def runner(tmp_path):
    """Return what runs a step of the action as GitHub's runner does, with a `gh` that writes down its calls."""
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    (tools / "tpuctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    (tools / "gh").write_text(GH)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "known").touch()
    variables = {
        **environment(), "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(ACTION),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "CALLS": str(tmp_path / "calls"),
        "KNOWN": str(tmp_path / "known"), "TPUCTL_CLOUD": "local", "TPUCTL_LOCAL_DIR": str(tmp_path / "cloud"),
        "TPUCTL_STATE_DIR": str(tmp_path / "state"),
    }  # fmt: skip

    def run(name, **more):
        return subprocess.run(
            # As a runner starts `shell: bash`.
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
            cwd=work, env={**variables, **more}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    run.work, run.folder = work, tmp_path
    return run


def example(work):
    """Copy the first example into a folder."""
    for path in (ROOT / "examples/numpy-lm").iterdir():
        if path.is_file():
            (work / path.name).write_bytes(path.read_bytes())


def test_the_steps_of_the_action_make_a_page_and_a_comment(runner):
    """Plan, summary, comment, check: with the price, and the same comment again the next time."""
    example(runner.work)
    for name in ("Plan", "Summary", "Check"):
        done = runner(name)
        assert done.returncode == 0, done.stderr
    page = (runner.folder / "summary.md").read_text()
    assert page.startswith("<!-- tpuctl -->\n### tpuctl: plan of numpy-lm")
    assert re.search(r"\*\*\$\d+\.\d\d an hour\*\*, \$\d+\.\d\d on demand", page)
    assert "| create | TPU numpy-lm-tpu-g1 | europe-west4-b |" in page
    assert "| create | VM numpy-lm-vm | europe-west4-b |" in page
    assert "Check: 0 findings" in page
    asked = {"GH_TOKEN": "x", "GH_REPO": "o/r", "NUMBER": "7"}
    assert runner("Comment", **asked).returncode == 0
    (runner.folder / "known").write_text("41\n42\n")
    assert runner("Comment", **asked).returncode == 0
    calls = (runner.folder / "calls").read_text().splitlines()
    assert [line.split(" --jq")[0] for line in calls] == [
        "api --paginate repos/o/r/issues/7/comments",
        f"api -X POST repos/o/r/issues/7/comments -F body=@{runner.folder}/tpuctl.md",
        "api --paginate repos/o/r/issues/7/comments",
        f"api -X PATCH repos/o/r/issues/comments/41 -F body=@{runner.folder}/tpuctl.md",
    ]


def test_a_file_with_an_error_fails_the_plan_and_is_on_the_page(runner):
    """The reason is where a reader of the pull request looks."""
    (runner.work / "tpuctl.yaml").write_text("name: x\ntpu: {type: v5litepod-4, zones: [mars]}\n")
    assert runner("Plan").returncode == 2
    assert runner("Summary").returncode == 0
    page = (runner.folder / "summary.md").read_text()
    assert "### tpuctl: error TPU-110" in page
    assert runner("Check").returncode == 2


def test_what_a_pull_request_wrote_is_text_on_the_page(runner):
    """No link, no mention, no tag, no cell of the table; who reads it is logged in."""
    example(runner.work)
    assert runner("Plan").returncode == 0
    retained = runner.folder / "tpuctl-plan.json"
    plan = json.loads(retained.read_text())
    evil = "@owner [x](http://evil) <img src=x> | `code` **b** #1 \n# head"
    plan["name"] = evil
    plan["changes"][0]["name"] = evil
    plan["check"]["findings"] = [{"rule": evil, "level": evil, "where": evil, "message": evil, "hint": evil}]
    retained.write_text(json.dumps(plan))
    assert runner("Summary").returncode == 0
    page = (runner.folder / "summary.md").read_text().split("\n", 1)[1]
    assert "owner" in page
    for sign in ("@", "[x]", "<", "`", "**b**", "\n# head", "#1 "):
        assert sign not in page.replace("### tpuctl", ""), sign


def test_no_step_puts_an_input_into_a_script():
    """Values come as variables; a script is what is written there. Comments are written only when asked for."""
    for step in STEPS.values():
        assert "${{" not in step["run"]
        done = subprocess.run(
            [Path(sys.executable).parent / "shellcheck", "-s", "bash", "-"],
            input=step["run"], capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    assert "inputs.comment == 'true'" in STEPS["Comment"]["if"]
    assert "pull_request'" in STEPS["Comment"]["if"]


def test_the_install_step_takes_what_it_is_given(runner):
    """Here it is installed already, so that pip needs no network."""
    done = runner("Install", PACKAGE="tpuctl", PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr


def test_the_hook_of_pre_commit_checks_each_file(runner):
    """As pre-commit calls it, with the names of the changed files behind its entry."""
    (hook,) = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text())
    good, bad = runner.work / "good", runner.work / "bad"
    for folder in (good, bad):
        folder.mkdir()
        example(folder)
    assert re.search(hook["files"], "bad/tpuctl.yaml")
    assert not re.search(hook["files"], "bad/my-tpuctl.yaml")
    text = (bad / "tpuctl.yaml").read_text()
    (bad / "tpuctl.yaml").write_text(text.replace("europe-west4-b", "mars-1-b"))

    def called(*files):
        variables = {
            **os.environ,
            **environment(),
            "PATH": f"{runner.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            [*shlex.split(hook["entry"]), *files], cwd=runner.work, env=variables, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip

    assert called("good/tpuctl.yaml").returncode == 0
    done = called("bad/tpuctl.yaml", "good/tpuctl.yaml")
    assert done.returncode == 2
    assert "mars-1-b" in done.stderr
    assert "numpy-lm" in done.stdout, "the second file is looked at too"


def test_the_dockerfile_installs_the_wheel_and_nothing_of_ours_else():
    """One file is copied, nothing is fetched by hand, and it runs without rights; hadolint finds nothing."""
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKER.read_text(), flags=re.MULTILINE)).splitlines()
    words = [line.split(None, 1) for line in lines if line]
    assert [rest for word, rest in words if word in {"COPY", "ADD"}] == ["tpuctl-*.whl /tmp/wheel/"]
    assert [rest for word, rest in words if word == "USER"] == ["1000"]
    assert words[-2:] == [["ENTRYPOINT", '["tpuctl"]'], ["CMD", '["--help"]']]
    assert not re.search(r"curl|wget|git clone|http", " ".join(rest for _, rest in words))
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed: pip install -e '.[dev]'")
    done = subprocess.run([hadolint, DOCKER], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
