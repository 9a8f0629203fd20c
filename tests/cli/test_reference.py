"""The reference says what the commands say, the man page is clean, and shells complete our words."""

import os
import re
import shutil
import subprocess
import sys

import click
import pytest

from orchestrator.config.setting_types import settings
from tests.cli import reference
from tests.cli.cli_kit import ROOT, environment

PAGES = {
    "docs/commands.md": reference.markdown,
    "docs/man/tpuctl.1": reference.man,
    "docs/tpuctl-yaml.md": reference.settings_page,
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_made_from_the_commands(path):
    """A new flag is in the reference, or this says so (TPUCTL_UPDATE_GOLDEN=1 writes it)."""
    text = PAGES[path]()
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        (ROOT / path).write_text(text)
    assert (ROOT / path).read_text() == text


def test_every_help_fits_eighty_columns():
    """Also a block of columns, which click prints as it stands."""
    for words, command in reference.commands():
        context = click.Context(
            command, info_name=" ".join(("tpuctl", *words)), terminal_width=80, **reference.NAMES
        )
        wide = [line for line in command.get_help(context).splitlines() if len(line) > 80]
        assert not wide, words


def test_no_list_of_commands_cuts_a_sentence():
    """Each command of a group has a line of its own in that list, which fits a terminal of 80 columns."""
    for words, command in reference.commands():
        context = click.Context(
            command, info_name=" ".join(("tpuctl", *words)), terminal_width=80, **reference.NAMES
        )
        assert not [line for line in command.get_help(context).splitlines() if line.endswith("...")][1:], (
            words
        )


def test_every_setting_has_its_paragraph():
    """With its kind of value, its default and what it does; what has no description is no setting for people."""
    parts = dict(re.findall(r"### `([\w.]+)`\n\n(.+?)(?=\n##|\Z)", reference.settings_page(), re.DOTALL))
    assert set(parts) == {key for key, one in settings().items() if not one.section}
    for key, text in parts.items():
        assert re.match(r"`[^`]+`, (required|optional|default `)", text), key
        assert len(text.split("\n\n")[1]) > 15, key
    assert parts["watch.poll"].startswith("`time`, default `15s`")
    assert parts["tpu.zones"].startswith("`list`, required")
    assert parts["tpu.strategy"].startswith("`failover | race | race-regions`, default `failover`")


def test_the_man_page_knows_every_exit_code():
    """The list of the page is that of the errors."""
    assert set(reference.EXITS) == reference.exit_codes()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_has_no_warning():
    """Readers see it as it is meant."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(ROOT / "docs/man/tpuctl.1")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def completed(tmp_path, *words):
    """Return what bash offers after *words*, asked as bash itself does."""
    script = (
        'tpuctl() { "$PYTHON" -m orchestrator "$@"; }; export -f tpuctl\n'
        'eval "$(tpuctl completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_tpuctl_completion "$BIN"; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    program = tmp_path / "tpuctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    program.chmod(0o755)
    variables = {**environment(), "PYTHON": sys.executable, "BIN": str(program), "PYTHONPATH": str(ROOT)}
    variables["TPUCTL_STATE_DIR"] = str(tmp_path / "state")
    done = subprocess.run(
        ["bash", "-c", script], env=variables, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes_commands(tmp_path):
    """The first word."""
    assert completed(tmp_path, "tpuctl", "expl") == ["explain"]


def test_bash_completes_the_names_of_deployments(tmp_path):
    """Those that were brought up here, on the cloud that the line names."""
    for cloud, name in (("gcp", "roberta-ja"), ("gcp", "other"), ("local", "roberta-local")):
        retained = tmp_path / "state" / cloud / "my-project" / name / "spec.json"
        retained.parent.mkdir(parents=True)
        retained.write_text("{}")
    assert completed(tmp_path, "tpuctl", "cost", "rob") == ["roberta-ja"]
    assert completed(tmp_path, "tpuctl", "cost", "--cloud", "local", "rob") == ["roberta-local"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(shell, tmp_path):
    """Syntax, by the shell itself."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "completion", shell],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    (tmp_path / "script").write_text(done.stdout)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
