"""The shell scripts that stand as texts in the code: each is clean as a machine gets it, its blanks filled in."""

import ast
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.machine import apt, ray, venv
from orchestrator.app.machines import ssh_proxy, workers
from orchestrator.app.selftest import probes
from orchestrator.emulator.machines import apt_standin, docker_standin, machine_programs, machine_python
from orchestrator.emulator.machines.start_module import shell_command
from orchestrator.engine import adopt
from orchestrator.engine.fleet import slurm
from orchestrator.engine.loop import loop_on_vm
from orchestrator.ssh import copy, elevate, tree, upload

ROOT = Path(__file__).parents[2] / "orchestrator"
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
PARDONED = "SC1090,SC1091,SC2012"
"""Files of a machine, which are not here to follow, and `ls` of devices, whose names are plain."""
NASTY = "/it's here"


def wrapper(script):
    """Return a program of a machine with its blanks filled in: each value is quoted where it is made."""
    quoted = shlex.quote(NASTY)
    return script.format(
        python=quoted,
        agent=quoted,
        name="apt-get",
        package=quoted,
        files=quoted,
        command=shell_command("one.two"),
    )


def wrapped(script):
    """Return *script* in the text around it, which runs it as root where that is needed."""
    word, line, text = shlex.split(elevate.elevated("tpuctl-x", script, NASTY, "it's"))[1:]
    assert (word, line) == ("--norc", "-c")
    return text


def installs():
    """Return the script that installs the loop."""
    return loop_on_vm._filled(loop_on_vm._INSTALL, DIGEST="a" * 64, SCOPE="https://x/y", NO_SCOPE="77")


SCRIPTS = {
    "ssh/upload.py _RECEIVE": upload._RECEIVE,
    "ssh/upload.py _PUT": upload._PUT,
    "ssh/copy.py _TAKE": copy._TAKE,
    "ssh/copy.py _GIVE": copy._GIVE,
    "ssh/copy.py PLACE": copy.PLACE,
    "ssh/tree.py _TAKE": tree._TAKE,
    "ssh/tree.py _GIVE": tree._GIVE,
    "ssh/elevate.py _OUTER": wrapped("exit 3"),
    "app/machines/ssh_proxy.py _LINK": ssh_proxy._LINK,
    "app/machines/workers.py IN_JOB": workers.IN_JOB,
    "app/selftest/probes.py PROBE": probes.PROBE,
    "app/selftest/probes.py CHIPS": probes.CHIPS,
    "engine/loop/loop_on_vm.py _INSTALL": installs(),
    "engine/loop/loop_on_vm.py _CALL": loop_on_vm._filled(loop_on_vm._CALL, VERB="status"),
    "engine/fleet/slurm.py _RUN": slurm._RUN.replace("@FOLDER@", slurm.FOLDER).replace(
        "@WORDS@", "queue 'a b'"
    ),
    "engine/adopt.py _NEEDS": f"deployment={shlex.quote(NASTY)}\n{adopt._NEEDS}",
    "engine/adopt.py _STOP": f"seconds=60\n{adopt._STOP}",
    "agent/machine/ray.py SCRIPT": ray.SCRIPT,
    "agent/machine/apt.py SCRIPT": wrapper(apt.SCRIPT),
    "agent/machine/venv.py SCRIPT": wrapper(venv.SCRIPT),
    "emulator/machines/machine_programs.py SCRIPT": wrapper(machine_programs.SCRIPT),
    "emulator/machines/apt_standin.py SCRIPT": wrapper(apt_standin.SCRIPT),
    "emulator/machines/docker_standin.py SCRIPT": wrapper(docker_standin.SCRIPT),
    "emulator/machines/machine_python.py NO_PIP": machine_python.NO_PIP,
}
SIGNS = ("#!/bin/sh", "\nset -", "\nfi\n", "\ndone\n", "${", "$(", '"$1', '"$2', '"$@')


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_in_the_code_is_clean(name, tmp_path):
    """`bash -n` and shellcheck say nothing of it."""
    text = SCRIPTS[name]
    path = tmp_path / "script"
    path.write_text(text)
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False).stderr == ""
    shell = "sh" if text.startswith("#!/bin/sh") else "bash"
    done = subprocess.run(
        [SHELLCHECK, "-e", PARDONED, "-s", shell, path], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


def constants(path):
    """Yield the names of a module's constants whose text, as it stands in the file, looks like shell."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            text = "".join(one for one in texts if isinstance(one, str))
            if text.count("\n") > 1 and any(sign in text for sign in SIGNS):
                yield node.targets[0].id


def test_every_script_in_the_code_is_listed():
    """A new one needs its line above."""
    found = {
        f"{path.relative_to(ROOT).as_posix()} {name}"
        for path in ROOT.rglob("*.py")
        for name in constants(path)
    }
    assert found == set(SCRIPTS)
