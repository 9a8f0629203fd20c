"""tpuctl check, and what plan shows of it."""

import shutil

import pytest

from orchestrator.emulator import packages
from tests.cli.cli_kit import ROOT, document, here, tpuctl

FILE = """\
name: mine
tpu: {type: v3-8, zones: [europe-west4-a]}
job:
  command: python3 train.py --batch-size 10
  setup: pip install torch torch_xla
  checkpoint: {format: torch}
"""
OPEN = "jupyter lab --ip=0.0.0.0 --ServerApp.token= &\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stand in a folder with a script, on a small terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "train.py").write_text(
        "import torch_xla.core.xla_model as xm\nprint(xm.xrt_world_size())\nxm.save(m, path)\n"
    )
    return tmp_path


def write(folder, text):
    """Write the deployment file."""
    (folder / "tpuctl.yaml").write_text(text)


def test_warnings_are_printed_in_groups_and_forbid_nothing(folder, capsys):
    """Worst first; rule, place, number and what to change; at most 80 columns; exit code 0."""
    write(folder, FILE)
    code, out, err = here(capsys, "check")
    assert (code, err) == (0, "")
    assert out.startswith("Check of mine: 3 warnings, 1 note\n")
    assert out.index("Warnings:") < out.index("Notes:")
    for words in (
        "unpinned-torch  job.setup",
        "removed-torch-xla  train.py:2",
        "change: use torch_xla.runtime",
    ):
        assert words in out
    assert "costs as much as 16" in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


def test_a_stop_leaves_with_two(folder, capsys):
    """CI can hold a start back."""
    write(folder, FILE)
    (folder / "start.sh").write_text(OPEN)
    code, out, _ = here(capsys, "check")
    assert code == 2
    assert out.index("Stop:") < out.index("Warnings:")


def test_programs_get_one_document(folder, capsys):
    """The same findings, counted, with what was not read."""
    write(folder, FILE)
    (folder / "start.sh").write_text(OPEN)
    (folder / "old.py").write_text("print 'two'\n")
    code, out, err = here(capsys, "check", "--json")
    found = document(out)
    assert (code, err, found["kind"], found["ok"]) == (2, "", "check", False)
    assert sum(found["counts"].values()) == len(found["findings"])
    assert found["counts"]["stop"] == 2
    assert found["python"] == "3.10, the image's"
    assert found["unread_files"] == ["old.py"]
    assert {"rule", "level", "where", "message", "hint"} == set(found["findings"][0])


def test_a_setting_can_be_tried_from_the_command_line(folder, capsys):
    """--set answers `would it fit?` without an edit."""
    write(folder, FILE)
    small, large = (
        here(capsys, "check", "--json", "--set", f"job.memory.params_millions={size}") for size in (100, 1500)
    )
    assert (small[0], large[0]) == (0, 2)
    assert "core-memory" in {f["rule"] for f in document(large[1])["findings"]}


def test_a_plan_ends_with_the_check_and_never_fails_by_it(folder, capsys):
    """What each rule found, whole and with its remedy; notes are left to `check`."""
    write(folder, FILE)
    (folder / "start.sh").write_text(OPEN)
    code, out, err = here(capsys, "plan")
    assert (code, err) == (0, "")
    tail = out[out.index("Check: ") :].splitlines()
    assert tail[0] == "Check: 2 stops, 3 warnings, 1 note"
    assert tail[1].startswith("  stop  open-notebook (and 1 more): start.sh:1: Jupyter")
    assert tail[-1] == "  All details: tpuctl check"
    assert sum(line.startswith(("  stop  ", "  warn  ")) for line in tail) == 4
    assert sum(line.startswith("        change: ") for line in tail) == 4
    assert "\u2026" not in out
    assert max(len(line.rstrip()) for line in tail) <= 80
    found = document(here(capsys, "plan", "--json")[1])
    assert found["check"]["counts"] == {"stop": 2, "warn": 3, "note": 1}


def test_nothing_found_is_said(tmp_path, capsys):
    """Silence could also mean that nobody looked."""
    shutil.copytree(ROOT / "examples" / "numpy-lm", tmp_path / "w")
    code, out, _ = here(capsys, "check", "--file", str(tmp_path / "w" / "tpuctl.yaml"))
    assert (code, out) == (0, "Check of numpy-lm: no problem found\nPython of the job: 3.10, the image's\n")


def test_a_wrong_file_is_an_error_of_its_own(folder, capsys):
    """A typing mistake is not a finding."""
    write(folder, FILE + "  memory: {shards: 0, text_gb: -1}\n")
    code, out, err = here(capsys, "check")
    assert (code, out) == (2, "")
    assert "job.memory.shards: 0 is less than one core" in err.replace("\n", " ")
    assert "job.memory.text_gb: -1 is not an amount" in err.replace("\n", " ")


def test_a_check_runs_nothing_of_the_user(folder):
    """The code is read, never imported; nothing is written anywhere."""
    work = folder / "work"
    work.mkdir()
    write(work, FILE)
    (work / "train.py").write_text("open('ran', 'w').close()\nraise SystemExit(9)\n")
    done = tpuctl("check", cwd=work, HOME=str(work / "nobody"), PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0
    assert {path.name for path in work.iterdir()} == {"tpuctl.yaml", "train.py"}


@pytest.mark.parametrize("cloud", ["local", "gcp"])
def test_check_and_plan_say_that_the_local_cloud_lacks_packages(folder, capsys, monkeypatch, cloud):
    """Else `plan` finds no problem and `up` fails; on the real cloud nobody needs them."""
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "asyncssh" else object())
    write(folder, FILE)
    found = [here(capsys, command, "--cloud", cloud, "--json")[1] for command in ("check", "plan")]
    checks = [document(found[0]), document(found[1])["check"]]
    for check in checks:
        stops = [(one["rule"], one["hint"]) for one in check["findings"] if one["level"] == "stop"]
        assert stops == [("local-packages", "pip install 'tpuctl[local]'")] * (cloud == "local")


def test_help_of_the_local_cloud_names_the_packages_before_the_reset(capsys):
    """Nobody deletes a local cloud because a package is missing."""
    out = here(capsys, "help", "TPU-900")[1]
    assert 0 < out.index("pip install 'tpuctl[local]'") < out.index("tpuctl local reset")
