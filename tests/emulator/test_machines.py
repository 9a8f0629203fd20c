"""What a machine of the local cloud does, whichever kind it is."""

import os
import random
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.emulator.machines import process_table
from orchestrator.emulator.machines.machine_kinds import make_machines
from orchestrator.emulator.machines.machine_settings import MachineSettings
from orchestrator.emulator.machines.namespace import available
from orchestrator.emulator.machines.process import ProcessMachines
from orchestrator.errors import LocalCloudError
from tests.emulator.machines_lab import KINDS, lab
from tests.kit.waiting import until


def test_boot_runs_the_startup_script_as_the_metadata_says(make):
    """Its first line rules, its output reaches the serial port, and a failure does not stop the boot."""
    lines = [
        "#!/bin/bash",
        'echo "root is $TPUCTL_ROOT"',
        'mkdir -p "$TPUCTL_ROOT"',
        'echo here > "$TPUCTL_ROOT/file"',
    ]
    script = "  " + "\n".join([*lines, "exit 3"])
    with make(**{"startup-script": script}) as it:
        it.boot()
        until(lambda: "Finished running startup scripts." in it.serial(), "the end of the startup script", 90)
        assert "startup-script: root is /" in it.serial()
        assert 'Script "startup-script" failed with error: exit status 3' in it.serial()
        assert it.output('cat "$TPUCTL_ROOT/file"') == "here"


def test_a_silent_machine_boots_and_runs_no_startup_script(make):
    """It can be reached and its metadata says what it should have run: what operators call a zombie."""
    with make(**{"startup-script": "echo it ran"}) as it:
        it.machine = replace(it.machine, silent=True)
        it.boot()
        assert it.output("echo reached") == "reached"
        assert "it ran" not in it.serial()


def test_a_session_sees_the_local_cloud_and_no_credentials(make, monkeypatch):
    """Nothing of the caller's environment passes but what the machine needs."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/secret.json")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    with make() as it:
        it.boot()
        shown = dict(line.partition("=")[::2] for line in it.output("env").splitlines())
    assert not {"GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY"} & shown.keys()
    assert shown["GCE_METADATA_HOST"] == f"{it.machine.address}:{it.machines.settings.metadata_port}"
    assert shown["STORAGE_EMULATOR_HOST"] == it.machines.settings.endpoint
    assert shown["XLA_FLAGS"].endswith("=8")
    assert shown["HOME"].endswith("/home/ada")


def test_stop_kills_what_hides_and_keeps_the_disk(booted):
    """A process in its own session, without hang-up and with an emptied environment dies with its machine."""
    seconds = f"{random.randint(10_000, 90_000)}.{random.getrandbits(30)}"
    booted.output(
        f"setsid nohup env -i sleep {seconds} >/dev/null 2>&1 & nohup sleep {seconds} >/dev/null 2>&1 &"
        f" (setsid bash -c 'setsid sleep {seconds} & sleep {seconds}' >/dev/null 2>&1 &); echo kept > ~/file"
    )
    until(lambda: len(sleepers(seconds)) == 4, "four processes", 90)
    booted.machines.stop(booted.machine.id)
    assert sleepers(seconds) == set()
    assert not booted.machines.running(booted.machine.id)
    assert list(booted.folder.rglob("home/ada/file"))


def sleepers(seconds: str) -> set[int]:
    """Return the pids of this computer that sleep so long."""
    done = subprocess.run(["pgrep", "-f", f"^sleep {seconds}$"], capture_output=True, text=True, check=False)
    return {int(pid) for pid in done.stdout.split()}


def test_stop_leaves_other_machines_alone(make, kind, tmp_path):
    """The neighbour, in another local cloud, runs on."""
    with make() as it, lab(KINDS[kind], tmp_path / "second") as neighbour:
        it.boot()
        neighbour.boot()
        it.machines.reap_all(disks=True)
        assert neighbour.output("echo alive") == "alive"


def test_a_reboot_keeps_disk_and_host_key_and_runs_the_script_again(make):
    """A VM that is started again is the same machine."""
    with make(kind="vm", **{"startup-script": "echo boot >> $HOME/boots"}) as it:
        it.boot()
        until(lambda: it.serial().count("Finished") == 1, "the first boot", 90)
        key = it.view.guest_attributes["hostkeys/ssh-ed25519"]
        it.output("echo mine > ~/file")
        it.machines.stop(it.machine.id)
        it.boot()
        until(lambda: it.serial().count("Finished") == 2, "the second boot", 90)
        assert it.view.guest_attributes["hostkeys/ssh-ed25519"] == key
        home = "/root" if it.machines.kind == "namespace" else str(it.folder / "home/root")
        assert it.output(f"cat ~/file {home}/boots").split() == ["mine", "boot", "boot"]


def test_notice_runs_the_shutdown_script_then_terminates_the_job(make):
    """The power button gives scripts and jobs their time; the machine then goes off by itself."""
    with make(**{"shutdown-script": 'echo "saving"; sleep 0.2; echo "saved"'}) as it:
        it.boot()
        job = 'trap "echo stopped > ~/job; exit" TERM; while :; do sleep 0.1; done'
        it.output(f"setsid bash -c '{job}' >/dev/null 2>&1 &")
        it.machines.notice(it.machine.id)
        until(lambda: "shutdown-script exit status 0" in it.serial(), "the shutdown script", 90)
        assert "shutdown-script: saving\r\nshutdown-script: saved" in it.serial()
        until(lambda: not it.machines.running(it.machine.id), "the machine's end", 90)
        assert [p.read_text() for p in it.folder.rglob("home/ada/job")] == ["stopped\n"]


def test_remove_leaves_no_process_no_mount_and_no_file(booted):
    """A removed machine never was."""
    booted.output("setsid sleep 300 >/dev/null 2>&1 &")
    booted.machines.remove(booted.machine.id)
    booted.machines.drain()
    assert process_table.members(booted.machines.settings.marker(booted.machine.id)) == set()
    assert booted.machine.id not in Path("/proc/mounts").read_text()
    assert list(booted.machines.settings.root.iterdir()) == []
    booted.machines.remove(booted.machine.id)


def test_machines_outlive_the_daemon_and_are_found_again(booted, kind):
    """Machines built again, as by a daemon that was restarted, know what runs and can stop it."""
    again = KINDS[kind](booted.machines.settings)
    assert again.reattach() == {booted.machine.id}
    again.boot(booted.machine)
    assert booted.output("echo same") == "same"
    again.stop(booted.machine.id)
    assert again.reattach() == frozenset()


def test_a_pid_that_was_given_to_another_process_is_not_touched(booted):
    """The pid file names the start time too."""
    booted.machines.stop(booted.machine.id)
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (booted.folder / "pid").write_text(f"{bystander.pid} 1\n")
        booted.machines.notice(booted.machine.id)
        booted.machines.stop(booted.machine.id)
        # Of signals that wait together, the one with the lowest number comes first: this one after any of `stop`.
        bystander.send_signal(signal.SIGVTALRM)
        assert bystander.wait(60) == -signal.SIGVTALRM


def test_a_machine_whose_pid_file_was_never_written_is_not_doubled(booted):
    """The daemon may die between starting a machine and noting it: the next boot finds and replaces it."""
    marker = booted.machines.settings.marker(booted.machine.id)
    before = process_table.members(marker)
    (booted.folder / "pid").unlink()
    booted.machines.boot(booted.machine)
    assert not before & process_table.table().keys()
    assert booted.machines.running(booted.machine.id)


def test_the_oldest_process_of_a_machine_dies_first(monkeypatch):
    """An SSH server that outlived a command would report an exit to its client, where a machine has died."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(5)]
    ages = {one.pid: age for age, one in enumerate(reversed(sleepers))}
    look, kill, killed = process_table.process_of, os.kill, []
    monkeypatch.setattr(
        process_table, "process_of", lambda pid: (found := look(pid)) and replace(found, started=ages[pid])
    )
    monkeypatch.setattr(os, "kill", lambda pid, number: (killed.append(pid), kill(pid, number)))
    process_table.kill_all(lambda: {one.pid for one in sleepers if one.poll() is None})
    assert killed[:5] == sorted(ages, key=ages.get)


def test_unknown_kinds_are_refused(tmp_path):
    """The error names the kinds there are."""
    settings = MachineSettings(tmp_path, "c", "http://127.0.0.1:1", 22, 80)
    with pytest.raises(LocalCloudError, match="no kind of machines 'docker'"):
        make_machines("docker", settings)
    assert make_machines("process", settings).kind == "process"


def test_namespaces_say_why_they_cannot_work(monkeypatch):
    """A user who is not root gets an error that says so."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "need root" in str(available())


def test_unix_sockets_fit_below_tmpdir(tmp_path):
    """A manager of multiprocessing, and a connection through a queue, as torch's loaders of data use it."""
    deep = tmp_path / ("a-folder-with-a-long-name-" * 3)
    deep.mkdir()
    with lab(ProcessMachines, deep) as it:
        it.boot()
        program = (
            "import multiprocessing as m\nif __name__ == '__main__':\n"
            "    one, other = m.Pipe()\n    q = m.Queue()\n    q.put(one)\n    got = q.get(timeout=60)\n"
            "    got.send('text')\n    print(other.recv(), m.Manager().list([1]))\n"
        )
        (deep / "program.py").write_text(program)
        assert it.output(f"python3 {deep}/program.py") == "text [1]"
        short = Path(it.output("echo $TMPDIR"))
        assert short.is_symlink()
        assert short.resolve().is_relative_to(deep)
        it.machines.stop(it.machine.id)
        assert not short.parent.exists()
