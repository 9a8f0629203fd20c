"""The scripts that nothing is filled into: those that run over SSH, and those that stand in the code."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.layout import install_starter
from orchestrator.agent.machine import ray
from orchestrator.domain.remote_script import MachinePath, RemoteScript
from orchestrator.emulator.machines import machine_python
from orchestrator.emulator.machines.start_module import command, program
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import as_login, elevated

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "orchestrator"
REMOTE = sorted(one.stem for one in (ROOT / "templates/remote").iterdir())
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
PARDONED = "SC1090,SC1091,SC2012"
"""Files of a machine, which are not here to follow, and `ls` of devices, whose names are plain."""
NASTY = [
    "",
    "it's here",
    "$(touch C)",
    "`touch C`",
    "'; touch C #",
    "a b",
    "a\nb",
    "\\",
    "*",
    "-n",
    "日本語",
    "!!",
]
QUOTING = {
    "domain/remote_script.py": "the arguments of a script",
    "ssh/elevate.py": "the script itself",
    "ssh/client_config.py": "OpenSSH's settings on this computer",
    "app/machines/workers.py": "the words of the user's own command",
    "app/init.py": "the command in a new deployment file",
    "app/rehearsal/sandbox.py": "commands that the user is shown",
    "engine/fleet/slurm.py": "a file of settings that slurm.sh sources",
    "scripts/render.py": "the values of templates, and `bash_word` itself",
    "scripts/exports/job_script.py": "variables of the exported job script",
    "scripts/exports/jobset.py": "commands that the user is shown",
    "scripts/exports/ray.py": "commands that the user is shown",
    "scripts/exports/skypilot.py": "commands that the user is shown, and variables of the task",
    "agent/layout.py": "the words of a program that starts the agent; the agent has no templates",
    "contract/secrets/secret_forms.py": "the forms in which a secret may show, to be found",
    "emulator/machines/start_module.py": "the words of a machine's own program",
    "emulator/machines/services.py": "the environment of a machine",
    "emulator/machines/script_runner.py": "the path of the script that a machine runs",
    "emulator/machines/apt_standin.py": "answers that apt-config gives to be evaluated",
    "cli/views/init.py": "a command that the user is shown",
    "cli/views/verdict.py": "commands that the user is shown",
    "cli/views/local.py": "the output of `local env`, for `eval`",
}
"""The only files that quote for a shell, and what."""
READING = {
    "advice/check/findings.py": "the user's setup",
    "agent/machine/apt.py": "the answer of apt-config",
    "config/others/scripts.py": "scripts of other tools",
    "config/rules/notify.py": "the user's program for notifications",
    "engine/publish/receivers.py": "the user's program for notifications",
}
"""The files that only take such text apart, and whose."""
STARTED = "import sys; print(*map(ascii, sys.argv[1:]))"


def shellcheck_errors(text, folder):
    """Return what `bash -n` and shellcheck say of a script."""
    path = folder / "script"
    path.write_text(text)
    parsed = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False).stderr
    shell = "sh" if text.startswith("#!/bin/sh") else "bash"
    words = [SHELLCHECK, "-e", PARDONED, "-s", shell, path]
    return parsed + subprocess.run(words, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", REMOTE)
def test_a_script_that_runs_over_ssh_is_clean(name, tmp_path):
    """`bash -n` and shellcheck say nothing of it, with arguments and without."""
    assert shellcheck_errors(remote_script(name).bash(), tmp_path) == ""
    assert shellcheck_errors(remote_script(name, "it's", MachinePath("a b")).bash(), tmp_path) == ""


def test_every_script_over_ssh_is_used_by_its_name():
    """A file that no code names has been left behind."""
    code = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    assert [name for name in REMOTE if f'"{name}"' not in code and f'"remote/{name}.sh"' not in code] == []


def test_no_code_makes_the_text_of_a_script():
    """Each is a file of templates/remote/, into which nothing is filled."""
    paths = (path for path in PACKAGE.rglob("*.py") if "RemoteScript(" in path.read_text())
    assert [path.relative_to(PACKAGE).as_posix() for path in paths] == ["scripts/shipped.py"]


def test_values_become_shell_in_one_place():
    """Whoever needs a script with values passes arguments to a file of templates/remote/."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bshlex\b|\bbash_word\b", path.read_text())
    }
    assert found == QUOTING.keys() | READING.keys()


@pytest.mark.parametrize("way", ["elevated", "as the login"])
def test_arguments_arrive_as_they_are(way, tmp_path):
    """Each stays one word, and nothing of it runs, however often the script is wrapped on its way."""
    root = tmp_path / "the machine's"
    script = RemoteScript("probe", 'printf "%s\\0" "$@"', (*NASTY, MachinePath("it's/below")))
    line = (elevated if way == "elevated" else as_login)(script, str(root))
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == [str(root), *NASTY, f"{root}/it's/below"]
    assert not (tmp_path / "C").exists()


def test_the_machine_names_its_own_folder(tmp_path):
    """What its environment says goes before the folder of a machine that names none."""
    line = elevated(RemoteScript("probe", 'echo "$0 $1"'), "/nowhere")
    environment = {"PATH": "/usr/bin:/bin", "TPUCTL_ROOT": str(tmp_path)}
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"tpuctl-probe {tmp_path}\n"


def test_a_program_that_starts_the_agent_passes_its_words_on(tmp_path):
    """Those that it was written with, then those that it is called with."""
    install_starter(tmp_path / "plain", "It's ours.", "python3", "-E", "it's")
    assert shellcheck_errors((tmp_path / "plain").read_text(), tmp_path) == ""
    install_starter(tmp_path / "starter", "It's ours.", sys.executable, "-c", STARTED, *NASTY)
    words = [tmp_path / "starter", "its own"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == " ".join(map(ascii, [*NASTY, "its own"])) + "\n"


def test_a_program_of_a_local_machine_passes_its_words_on(tmp_path):
    """Its text is clean, and has each word as one."""
    assert shellcheck_errors(program("one.two", "it's"), tmp_path) == ""
    text = program("one.two", *NASTY)
    assert shlex.split(text[text.index("exec ") :]) == ["exec", *command("one.two", *NASTY), "$@"]


SCRIPTS = {
    "agent/machine/ray.py SCRIPT": ray.SCRIPT,
    "emulator/machines/machine_python.py NO_PIP": machine_python.NO_PIP,
}
SIGNS = ("#!/bin/sh", "\nset -", "\nfi\n", "\ndone\n", "${", "$(", '"$1', '"$2', '"$@')


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_in_the_code_is_clean(name, tmp_path):
    """`bash -n` and shellcheck say nothing of it."""
    assert shellcheck_errors(SCRIPTS[name], tmp_path) == ""


def constants(path):
    """Yield the names of a module's constants whose text, as it stands in the file, looks like shell."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            text = "".join(one for one in texts if isinstance(one, str))
            if text.count("\n") > 1 and any(sign in text for sign in SIGNS):
                yield node.targets[0].id


def test_every_script_in_the_code_is_listed():
    """A new one needs its line above, or better a file in templates/remote/."""
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for path in PACKAGE.rglob("*.py")
        for name in constants(path)
    }
    assert found == set(SCRIPTS)
