"""The docker of a local machine: real images, a file system of its own, and refusals as docker words them."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.emulator.machines.docker_container import within
from orchestrator.emulator.machines.docker_standin import install_docker
from orchestrator.emulator.machines.registry_client import ImageError, Reference, Registry, parse
from tests.kit import images
from tests.kit.images import layer, needs_containers, programs, small_image

Docker = Callable[..., subprocess.CompletedProcess[str]]
RUN = ("run", "--rm", "--network=host")


@pytest.fixture
def server() -> Iterator[images.ImageRegistry]:
    """Serve images for one test."""
    with images.registry() as one:
        one.push("p/train", "1", small_image())
        yield one


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    """Return a function that runs the stand-in's command line."""
    folder = tmp_path / "machine"
    folder.mkdir()
    install_docker(folder, folder)

    def call(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        line = [str(folder / "docker"), *map(str, words)]
        return subprocess.run(
            line, capture_output=True, text=True, env={**os.environ, **environ}, check=False
        )

    return call


@needs_containers
def test_a_container_sees_its_image_and_its_volumes_only(server, docker, tmp_path):
    """The root is the image's; a file of the machine that is not mounted is not there."""
    (tmp_path / "seen").mkdir()
    (tmp_path / "hidden").mkdir()
    script = (
        f"cat /etc/image-only; ls /etc/taken-away; ls -d {tmp_path}/*; echo written >{tmp_path}/seen/file"
    )

    done = docker(
        *RUN, "-v", f"{tmp_path}/seen:{tmp_path}/seen", f"{server.host}/p/train:1", "bash", "-c", script
    )

    assert done.stdout == f"made of layers\n{tmp_path}/seen\n"
    assert "cannot access '/etc/taken-away'" in done.stderr
    assert (tmp_path / "seen/file").read_text() == "written\n"


@needs_containers
def test_the_end_of_a_container_deletes_nothing_of_the_machine(server, docker, tmp_path):
    """What was mounted in it stays, and so do the devices, whatever the container did to its own."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/file").write_text("here")
    devices = sorted(path.name for path in Path("/dev").iterdir() if not path.name.startswith("tty"))

    done = docker(
        *RUN,
        "-v",
        f"{tmp_path}/volume:/volume",
        f"{server.host}/p/train:1",
        "bash",
        "-c",
        "rm /dev/null; exit 5",
    )

    assert done.returncode == 5
    assert (tmp_path / "volume/file").read_text() == "here"
    assert sorted(path.name for path in Path("/dev").iterdir() if not path.name.startswith("tty")) == devices
    assert list((tmp_path / "machine/var/lib/docker/containers").iterdir()) == []


@needs_containers
def test_variables_come_from_the_image_and_by_name(server, docker):
    """`-e NAME` takes the command's own value, and nothing else of the machine's environment is passed."""
    script = 'echo "$COLOUR $GIVEN ${MACHINE-none}"'
    words = ("-e", "GIVEN", "-e", "ABSENT", f"{server.host}/p/train:1", "bash", "-c", script)

    done = docker(*RUN, *words, GIVEN="by-name", MACHINE="x")

    assert done.stdout == "of-the-image by-name none\n"


@needs_containers
def test_exit_statuses_are_those_of_docker(server, docker):
    """127 for a command that is not in the image, 137 for a kill, 125 for what docker itself refuses."""
    name = f"{server.host}/p/train:1"

    assert docker(*RUN, name, "python3").returncode == 127
    assert docker(*RUN, "--init", name, "bash", "-c", "kill -9 $$").returncode == 137
    refused = docker(*RUN, "--gpus=all", name, "bash")
    assert (refused.returncode, "--gpus=all" in refused.stderr) == (125, True)
    absent = docker(*RUN, f"{server.host}/p/absent:1", "bash")
    assert (absent.returncode, "manifest unknown" in absent.stderr) == (125, True)


@needs_containers
def test_a_signal_reaches_the_whole_group_below_the_init(server, docker, tmp_path):
    """As with tini: the shell and what it waits for both get the signal."""
    program = tmp_path / "machine/docker"
    script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    words = [
        program,
        *RUN,
        "--init",
        "-e",
        "TINI_KILL_PROCESS_GROUP=1",
        f"{server.host}/p/train:1",
        "bash",
        "-c",
        script,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"

        running.terminate()

        assert running.stdout.read() == "asked\n"
    assert running.returncode == 3


@needs_containers
def test_a_command_is_run_inside_of_a_running_container(server, docker, tmp_path):
    """It sees the image, the container's own writes and processes, its variables and those that are named."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "hidden").write_text("of the machine")
    script = "echo in memory >/etc/own; : >/volume/ready; sleep 600"
    folder = tmp_path / "machine"
    words = [
        *RUN, "--name=one", "--init", "-v", f"{tmp_path}/volume:/volume", "-e", "KIND=run",
        f"{server.host}/p/train:1", "bash", "-c", script,
    ]  # fmt: skip
    assert "No such container: one" in docker("exec", "one", "bash", "-c", ":").stderr
    with subprocess.Popen([str(folder / "docker"), *words]) as running:
        while not (tmp_path / "volume/ready").exists():
            assert running.poll() is None
        look = f'cat /etc/image-only /etc/own; echo "$KIND $MORE $PWD $COLOUR"; ls {tmp_path}/hidden; exit 7'
        done = docker("exec", "-e", "MORE", "-w", "/volume", "one", "bash", "-c", look, MORE="of exec")
        assert done.stdout == "made of layers\nin memory\nrun of exec /volume of-the-image\n"
        assert (done.returncode, "cannot access" in done.stderr) == (7, True)
        assert docker("exec", "-t", "one", "bash").stderr == "the input device is not a TTY\n"
        assert docker("exec", "one", "nothing-of-this-name").returncode == 127
        docker("kill", "one")
    refused = docker("exec", "one", "bash", "-c", ":")
    assert (refused.returncode, "is not running" in refused.stderr) == (1, True)


@needs_containers
def test_a_name_is_taken_until_its_container_is_removed(server, docker, tmp_path):
    """A container outlives the command that started it; a second one of its name is refused."""
    name = f"{server.host}/p/train:1"
    words = [
        tmp_path / "machine/docker",
        *RUN,
        "--name=one",
        "--label=a=b",
        name,
        "bash",
        "-c",
        "echo ready; sleep 600",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        running.kill()
    (number,) = docker("ps", "-q", "--no-trunc", "--filter", "label=a=b").stdout.split()
    assert docker("ps", "-q", "--filter", "label=a=c").stdout == ""

    second = docker(*RUN, "--name=one", name, "bash", "-c", "echo second")

    assert (second.returncode, second.stdout) == (125, "")
    assert 'The container name "/one" is already in use' in second.stderr
    assert docker("rm", number).returncode == 1
    assert docker("rm", "-f", number).returncode == 0
    assert docker(*RUN, "--name=one", name, "bash", "-c", "echo second").stdout == "second\n"


@needs_containers
def test_a_committed_container_is_an_image(server, docker):
    """What it wrote and what it removed are there for the next one, and the image below is as it was."""
    name = f"{server.host}/p/train:1"
    docker(
        "run", "--network=host", "--name=one", name, "bash", "-c", "echo made >/etc/made; rm /etc/image-only"
    )

    assert docker("commit", "one", "mine:1").returncode == 0

    look = ("bash", "-c", "ls /etc")
    assert docker(*RUN, "mine:1", *look).stdout.split() == ["hostname", "hosts", "made", "resolv.conf"]
    assert "image-only" in docker(*RUN, name, *look).stdout


@needs_containers
def test_a_link_of_an_image_leads_nowhere_but_into_the_image(tmp_path, server, docker):
    """A layer that writes through a link of an earlier one writes into the image, not onto the machine."""
    outside = tmp_path / "outside"
    outside.mkdir()
    server.push("p/evil", "1", [layer({}, links={"way": str(outside)}), layer({"way/in": b"x"}), programs()])

    docker("pull", f"{server.host}/p/evil:1")

    assert list(outside.iterdir()) == []


def test_bytes_with_another_digest_are_refused(server, tmp_path):
    """A layer or a manifest that was changed on the way is no image."""
    name = parse(f"{server.host}/p/train:1")
    pulled = Registry(name, {}).manifest()
    server.corrupt = pulled.layers[0]["digest"]

    with pytest.raises(ImageError, match="verification failed for digest"):
        Registry(name, {}).download(pulled.layers[0], tmp_path / "layer")
    assert not (tmp_path / "layer").exists()
    wrong = parse(f"{server.host}/p/train@sha256:{'0' * 64}")
    server.manifests["p/train", wrong.digest] = server.manifests["p/train", "1"]
    with pytest.raises(ImageError, match="manifest verification failed"):
        Registry(wrong, {}).manifest()


def test_an_image_for_another_machine_is_refused(server):
    """In an index and in an image by itself."""
    server.push("p/arm", "1", [], index=False, architecture="riscv64")

    with pytest.raises(ImageError, match="the image is for linux/riscv64"):
        Registry(parse(f"{server.host}/p/arm:1"), {}).manifest()


def test_a_private_registry_gets_the_password_and_no_one_else(server):
    """Without it the pull is denied; with it a token is fetched, as registries ask for it."""
    with images.registry("token-of-the-machine") as private:
        private.push("p/train", "1", small_image())
        name = parse(f"{private.host}/p/train:1")
        with pytest.raises(ImageError, match="failed to authorize"):
            Registry(name, {}).manifest()
        login = {"username": "oauth2accesstoken", "password": "token-of-the-machine"}

        assert Registry(name, {"auths": {private.host: login}}).manifest().layers
        with pytest.raises(ImageError):
            Registry(name, {"auths": {server.host: login}}).manifest()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("busybox", Reference("docker.io", "library/busybox", "latest", "")),
        ("me/train:2", Reference("docker.io", "me/train", "2", "")),
        ("localhost:5000/train", Reference("localhost:5000", "train", "latest", "")),
        ("europe-docker.pkg.dev/p/r/train:1", Reference("europe-docker.pkg.dev", "p/r/train", "1", "")),
        (f"gcr.io/p/i@sha256:{'a' * 64}", Reference("gcr.io", "p/i", "", f"sha256:{'a' * 64}")),
    ],
)
def test_a_name_is_read_as_docker_reads_it(text, wanted):
    """Host, repository, tag and digest."""
    assert parse(text) == wanted


def test_links_are_followed_inside_of_the_root_only(tmp_path):
    """The place of a mount cannot be led out of the image."""
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "up").symlink_to("../../..")
    (root / "absolute").symlink_to("/data")
    (root / "round").symlink_to("round")

    assert within(root, "/up/etc") == root / "etc"
    assert within(root, "/absolute/x") == root / "data/x"
    with pytest.raises(OSError, match="too many links"):
        within(root, "/round")
