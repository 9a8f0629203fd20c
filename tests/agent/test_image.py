"""`job.image`: setup and job run in a container, and everything that job and agent agree on holds as without."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.emulator.machines.docker_standin import install_docker
from tests.agent.agent_lab import AgentLab, AgentMachine, is_alive
from tests.kit.images import JOB, ImageRegistry, layer, needs_containers, registry, small_image

pytestmark = needs_containers


@pytest.fixture
def images() -> Iterator[ImageRegistry]:
    """Serve one image, p/train:1."""
    with registry() as server:
        server.push("p/train", "1", small_image())
        yield server


@pytest.fixture(autouse=True)
def no_container_outlives_its_test(lab: AgentLab) -> Iterator[None]:
    """End containers that were still starting when their machine was killed."""
    yield
    for pid in (int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()):
        words = words_of(pid)
        if b"docker_container" in words and os.fsencode(lab.folder) in words:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def machine(lab: AgentLab, images: ImageRegistry, incarnation: int = 1, **changes: object) -> AgentMachine:
    """Make a machine that has docker, and a job in the image."""
    made = lab.machine(f"m{incarnation}", **{
        "INCARNATION": incarnation, "IMAGE": f"{images.host}/p/train:1", "COMMAND": "exec bash train.sh",
        "BUNDLE": lab.put_bundle({"train.sh": JOB.read_bytes()}), "JOB_ENV": "STEPS SECRET HIDDEN", **changes,
    })  # fmt: skip
    programs = lab.folder / f"docker{incarnation}"
    if not programs.exists():
        programs.mkdir()
        install_docker(programs, programs)
    made.env["PATH"] = f"{programs}:{made.env['PATH']}"
    return made


def words_of(pid: int) -> bytes:
    """Return the command line of a process, nothing of one that has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_job_sees_the_image_and_nothing_of_the_machine(
    lab: AgentLab, images: ImageRegistry, tmp_path: Path
) -> None:
    """Its files are those of the image; a file of the machine is not there, nor is the machine's Python."""
    hidden = tmp_path / "hidden"
    hidden.write_text("of the machine")

    trained = machine(lab, images, _STEPS=20, _HIDDEN=hidden).run_to_end()

    assert trained.heartbeat()["phase"] == "done"
    assert "image: made of layers, python3: none" in lab.log()
    assert f"ls: cannot access '{hidden}'" in lab.log()
    assert trained.heartbeat()["committed_step"] == 20


def test_a_notice_reaches_the_program_and_another_machine_goes_on(
    lab: AgentLab, images: ImageRegistry
) -> None:
    """SIGTERM passes through docker and its init: the program saves, and the next machine resumes from there."""
    first = machine(lab, images).start()
    first.until_committed(10)

    os.kill(first.process.pid, signal.SIGTERM)
    first.wait()

    assert "saved on request" in lab.log()
    assert first.heartbeat()["exit_code"] == 143 or first.heartbeat()["exit_code"] == -15
    saved = first.heartbeat()["committed_step"]
    assert saved % 10 or saved > 10
    machine(lab, images, 2, _STEPS=saved + 5).run_to_end()
    assert f"begin after {saved}, asked for {saved}" in lab.log(2)


def test_a_killed_agent_leaves_no_second_trainer(lab: AgentLab, images: ImageRegistry) -> None:
    """The container outlives its agent; the next agent ends it, with its docker command, before it begins."""
    first = machine(lab, images).start()
    first.until_committed(10)
    first.process.kill()
    first.wait()
    trainers = [pid for pid in first.job_processes() if words_of(pid).startswith(b"bash\0train.sh")]
    assert trainers

    first.start()
    first.until(lambda: len(lab.attempts()) == 2 and first.status().get("phase") == "run", "a second attempt")

    assert not any(is_alive(pid) for pid in trainers)


def test_a_person_works_beside_the_job_in_its_container(
    lab: AgentLab, images: ImageRegistry, tmp_path: Path
) -> None:
    """In the source folder, with the job's variables but no attempt's; never on the machine instead."""
    hidden = tmp_path / "hidden"
    hidden.write_text("of the machine")
    one = machine(lab, images, _STEPS=100000, _SECRET="told").start()
    one.until_committed(10)

    line = f"cat /etc/image-only; ls train.sh; echo $SECRET ${{TPUCTL_JOB-unset}}; ls {hidden}; exit 9"
    done = subprocess.run(
        one.command("enter", "--", line), env=one.env, capture_output=True, text=True, check=False
    )

    assert done.stdout == "made of layers\ntrain.sh\ntold unset\n"
    assert (done.returncode, f"cannot access '{hidden}'" in done.stderr) == (9, True)
    one.kill_all()
    done = subprocess.run(
        one.command("enter", "--", line), env=one.env, capture_output=True, text=True, check=False
    )
    assert (done.stdout, "--home opens the machine" in done.stderr) == ("", True)


def test_what_the_setup_installs_is_in_the_image_of_the_job(lab: AgentLab, images: ImageRegistry) -> None:
    """The setup runs in the image too, once; what it changes there is kept for every start on the machine."""
    setup = "echo setup runs; echo by-setup >/etc/set-up"
    one = machine(lab, images, SETUP=setup).start()
    one.until(lambda: "setup: by-setup" in lab.log(), "the job sees what the setup has made")
    one.process.kill()
    one.wait()

    one.start()
    one.until(lambda: len(lab.attempts()) == 2 and lab.log().count("setup: by-setup") == 2, "a second start")

    assert lab.log().count("setup runs\n") == 1


def test_all_machines_of_a_push_run_the_same_bytes(lab: AgentLab, images: ImageRegistry) -> None:
    """A tag that is moved changes nothing until the next push; the report says which digest runs."""
    first = machine(lab, images, _STEPS=100_000).start()
    first.until_committed(10)
    first.kill_all()
    other = [*small_image(), layer({"etc/image-only": b"moved\n"})]
    images.push("p/train", "1", other)

    second = machine(lab, images, 2, BUNDLE=first.env["TPUCTL_BUNDLE"]).start()
    second.until(lambda: "image: " in lab.log(2), "the job's first lines")

    assert "image: made of layers" in lab.log(2)
    assert second.heartbeat()["image"] == first.heartbeat()["image"]
    assert "@sha256:" in second.heartbeat()["image"]


def test_a_secret_is_in_no_command_line(lab: AgentLab, images: ImageRegistry) -> None:
    """Variables reach the container by name: a value stands in no argument of a process."""
    one = machine(lab, images, _SECRET="two\nlines").start()
    one.until(lambda: "secret: two\nlines" in lab.log(), "the job has it, with its line break")

    assert one.job_processes()
    assert not any(b"two\nlines" in words_of(pid) for pid in one.job_processes())


def test_an_exit_status_and_a_kill_come_through(lab: AgentLab, images: ImageRegistry) -> None:
    """The verdict names the program's own status, and a signal such as the kernel's when memory runs out."""
    one = machine(lab, images, FAILURES=1, COMMAND="exit 7")
    one.start().wait()
    assert "exited with status 7" in one.heartbeat()["message"]

    two = machine(lab, images, 2, FAILURES=1, COMMAND="kill -KILL $$")
    two.start().wait()
    assert "was ended by SIGKILL" in two.heartbeat()["message"]


def test_an_image_that_does_not_exist_is_said_and_no_job_starts(lab: AgentLab, images: ImageRegistry) -> None:
    """The deployment fails with docker's own reason."""
    one = machine(lab, images, IMAGE=f"{images.host}/p/other:1", FAILURES=1)

    one.start().wait()

    assert one.heartbeat()["phase"] == "failed"
    assert "manifest unknown" in one.heartbeat()["message"]
    assert not one.heartbeat()["attempts"]


def test_a_machine_without_docker_says_so(lab: AgentLab, images: ImageRegistry, tmp_path: Path) -> None:
    """The job is never run outside of its image."""
    one = machine(lab, images, FAILURES=1)
    (tmp_path / "few").mkdir()
    (tmp_path / "few/python3").symlink_to(sys.executable)
    one.env["PATH"] = str(tmp_path / "few")

    one.start().wait()

    assert "this machine has no docker" in one.heartbeat()["message"]


def test_only_our_own_containers_are_removed(lab: AgentLab, images: ImageRegistry) -> None:
    """A container that somebody else runs on the machine lives on."""
    one = machine(lab, images, _STEPS=20)
    program = lab.folder / "docker1/docker"
    words = [
        "run",
        "--rm",
        "--network=host",
        "--name=mine",
        f"{images.host}/p/train:1",
        "bash",
        "-c",
        "sleep 1000",
    ]
    with subprocess.Popen([program, *words], env=one.env, start_new_session=True) as other:
        try:
            ps = [program, "ps", "--quiet"]
            one.until(
                lambda: subprocess.run(ps, capture_output=True, check=True).stdout, "the other container"
            )
            one.run_to_end()
            assert subprocess.run(ps, capture_output=True, check=True).stdout
        finally:
            subprocess.run([program, "rm", "-f", "mine"], check=True)
            other.wait()


def test_a_registry_of_googles_gets_the_machines_token_in_a_file(
    lab: AgentLab, images: ImageRegistry
) -> None:
    """Docker reads it where only root can; no argument and no log has it, and no other registry is given it."""
    record = lab.folder / "asked"
    spy = f'#!/bin/bash\necho "$* config: $(cat "$DOCKER_CONFIG/config.json")" >>{record}; exit 1\n'
    for number, name in enumerate(("europe-docker.pkg.dev/p/r/train:1", "registry.example.com/p/train:1"), 1):
        one = machine(lab, images, number, IMAGE=name, FAILURES=1)
        (lab.folder / f"docker{number}/docker").write_text(spy)
        one.start().wait()
        assert "docker pull" in one.heartbeat()["message"]

    auth = base64.b64encode(b"oauth2accesstoken:lab").decode()
    googles, other = (
        [line for line in record.read_text().splitlines() if f"{name} config" in line]
        for name in ("pkg.dev/p/r/train:1", "example.com/p/train:1")
    )
    assert {line.partition(" config: ")[2] for line in googles} == {
        json.dumps({"auths": {"europe-docker.pkg.dev": {"auth": auth}}})
    }
    assert {line.partition(" config: ")[2] for line in other} == {"{}"}
    assert not any(auth in line.partition(" config: ")[0] for line in googles)
    assert auth not in lab.log() + lab.log(2)
