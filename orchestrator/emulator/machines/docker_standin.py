"""
Emulate docker on a local machine: a part of its command line, on kernel namespaces.

It supports pull, run, exec, ps, kill, rm, commit and images by name, and refuses unknown options. There is no
daemon. A container uses the machine's network, and its writes stay in memory until they are committed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.emulator.machines import namespaces
from orchestrator.emulator.machines.docker_container import CANNOT_START, PASSED, entered, locked
from orchestrator.emulator.machines.image_store import Image, ImageStore
from orchestrator.emulator.machines.machine_settings import MARKER
from orchestrator.emulator.machines.process_table import alive
from orchestrator.emulator.machines.registry_client import ImageError, parse
from orchestrator.emulator.machines.start_module import command, package_parent, program
from orchestrator.private_folders import private_file

PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ID = 12
"""Digits of an id in docker's output."""


class DockerError(Exception):
    """An error of docker: a message and an exit *status*."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def install_docker(folder: Path, files: Path) -> None:
    """Write the stand-in into *folder*, for the machine whose files are below *files*."""
    docker = folder / "docker"
    docker.unlink(missing_ok=True)
    docker.write_text(program("orchestrator.emulator.machines.docker_standin", str(files / "var/lib/docker")))
    docker.chmod(0o755)


class Docker:
    """Executes docker commands below *root*."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        self._containers = root / "containers"
        self._containers.mkdir(parents=True, exist_ok=True)
        self._store = ImageStore(root)
        self._environ = environ

    def run(self, asked: argparse.Namespace) -> int:
        reason = namespaces.refused()
        if reason:
            raise DockerError(f"containers cannot run on this machine of the local cloud: {reason}", 125)
        image = self._store.find(asked.image) or self._pulled(asked.image)
        number = os.urandom(32).hex()
        folder = self._containers / number
        settings = image.config.get("config", {})
        entry = [asked.entrypoint] if asked.entrypoint else settings.get("Entrypoint") or []
        words = asked.words or ([] if asked.entrypoint else settings.get("Cmd") or [])
        if not [*entry, *words]:
            raise DockerError("docker: Error response from daemon: No command specified.", 125)
        config = {
            "name": asked.name or f"c{number[:8]}",
            "labels": dict(_pair(one) for one in asked.label),
            "image": image.id,
            "shown": asked.image,
            "lowers": image.lowers,
            "command": [*entry, *words],
            "environment": self._variables(settings.get("Env") or [], asked.env),
            "folder": asked.workdir or settings.get("WorkingDir") or "/",
            "volumes": sorted((_volume(one) for one in asked.volume), key=lambda one: one[1].count("/")),
            "init": asked.init,
            "remove": asked.rm,
        }
        with locked(self._root):
            holder = self._named(str(config["name"]))
            if holder is not None:
                raise DockerError(
                    f'docker: Error response from daemon: Conflict. The container name "/{config["name"]}" is '
                    f'already in use by container "{holder.name}".',
                    CANNOT_START,
                )
            folder.mkdir()
            private_file(folder / "config.json", json.dumps(config).encode())
        return self._attached(folder)

    def _attached(self, folder: Path) -> int:
        """Start the container and wait for its end, forwarding signals."""
        few = {key: self._environ[key] for key in ("PATH", "LANG", MARKER) if key in self._environ}
        words = command("orchestrator.emulator.machines.docker_container", str(folder))
        # Clean environment and own session, so that the agent does not take it for a process of the job.
        shim = subprocess.Popen(
            words,
            env={**few, "PYTHONPATH": package_parent()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for number in PASSED:
            signal.signal(number, lambda passed, _frame: shim.send_signal(passed))
        return shim.wait()

    def pull(self, asked: argparse.Namespace) -> int:
        image = self._pulled(asked.image)
        if not asked.quiet:
            _show(f"Digest: {image.digests[-1].partition('@')[2]}")
        _show(asked.image)
        return 0

    def _pulled(self, name: str) -> Image:
        folder = Path(self._environ.get("DOCKER_CONFIG") or Path(self._environ.get("HOME", "/"), ".docker"))
        config: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            config = json.loads((folder / "config.json").read_text())
        try:
            with locked(self._root):
                image, _ = self._store.pull(parse(name), config)
        except ImageError as error:
            raise DockerError(f"Error response from daemon: {error}") from error
        return image

    def ps(self, asked: argparse.Namespace) -> int:
        for folder in self._matching(asked.filter):
            running = self._pid(folder)
            if running or asked.all:
                config = self._config(folder)
                _show(folder.name if asked.no_trunc else folder.name[:ID]) if asked.quiet else _show(
                    f"{folder.name[:ID]}\t{config['shown']}\t{'Up' if running else 'Exited'}\t{config['name']}"
                )
        return 0

    def exec(self, asked: argparse.Namespace) -> int:
        folder = self._wanted(asked.container)
        if asked.tty and not os.isatty(0):
            raise DockerError("the input device is not a TTY")
        try:
            init = int((folder / "init").read_text()) if self._pid(folder) else 0
        except (OSError, ValueError):
            init = 0
        if not init:
            raise DockerError(f"Error response from daemon: container {folder.name} is not running")
        config = self._config(folder)
        config["environment"].update(self._named_variables(asked.env))
        config["command"], config["folder"] = asked.words, asked.workdir or config["folder"]
        try:
            return entered(init, config, interactive=asked.interactive)
        except OSError as error:
            raise DockerError(f"Error response from daemon: {error}") from error

    def kill(self, asked: argparse.Namespace) -> int:
        number = signal.Signals[f"SIG{asked.signal.removeprefix('SIG')}"]
        for name in asked.names:
            folder = self._wanted(name)
            pid = self._pid(folder)
            if not pid:
                raise DockerError(f"Error response from daemon: container {name} is not running")
            # The kernel kills the container's pid 1 with its shim, and with that all its other processes.
            os.kill(pid, number)
            _show(name)
        return 0

    def rm(self, asked: argparse.Namespace) -> int:
        for name in asked.names:
            with locked(self._root):
                folder = self._named(name)
                pid = self._pid(folder) if folder else 0
                if folder is None:
                    if asked.force:
                        continue
                    raise DockerError(f"Error response from daemon: No such container: {name}")
                if pid and not asked.force:
                    raise DockerError(
                        f"Error response from daemon: container {name} is running: stop it first"
                    )
                if pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    while self._pid(folder):
                        time.sleep(0.005)  # Only its parent is notified of its end, so poll.
                namespaces.delete(folder)
            _show(name)
        return 0

    def commit(self, asked: argparse.Namespace) -> int:
        folder = self._wanted(asked.container)
        with locked(self._root):
            image = self._store.find(self._config(folder)["image"])
            if image is None or not (folder / "diff").is_dir():
                raise DockerError("the stand-in commits a container that has ended, and has its image")
            made = self._store.commit(image, folder / "diff", asked.name)
        _show(made.id)
        return 0

    def inspect(self, asked: argparse.Namespace) -> int:
        image = self._store.find(asked.image)
        if image is None:
            _show("[]")
            raise DockerError(f"Error response from daemon: No such image: {asked.image}")
        _show(json.dumps([image.as_docker_shows_it()], indent=4))
        return 0

    def rmi(self, asked: argparse.Namespace) -> int:
        with locked(self._root):
            image = self._store.find(asked.image)
            if image is None:
                raise DockerError(f"Error response from daemon: No such image: {asked.image}")
            self._store.remove(image)
        _show(f"Deleted: {image.id}")
        return 0

    def _variables(self, of_image: Sequence[str], given: Sequence[str]) -> dict[str, str]:
        """Return the command's variables; `-e NAME` passes this process's own value, if it has one."""
        found = {"PATH": PATHS, "HOSTNAME": os.uname().nodename, "HOME": "/root"}
        found.update(_pair(one) for one in of_image)
        return {**found, **self._named_variables(given)}

    def _named_variables(self, given: Sequence[str]) -> dict[str, str]:
        found = {}
        for one in given:
            name, equals, value = one.partition("=")
            if equals:
                found[name] = value
            elif name in self._environ:
                found[name] = self._environ[name]
        return found

    def _matching(self, filters: Sequence[str]) -> list[Path]:
        """Return the containers that have all given labels."""
        wanted = []
        for one in filters:
            kind, _, label = one.partition("=")
            if kind != "label":
                raise DockerError(f"the stand-in filters by label, not by {kind}")
            wanted.append(_pair(label))
        return [
            folder
            for folder in sorted(self._containers.iterdir())
            if all(self._config(folder).get("labels", {}).get(key) == value for key, value in wanted)
        ]

    def _named(self, name: str) -> Path | None:
        for folder in sorted(self._containers.iterdir()):
            config = self._config(folder)
            if config and (config["name"] == name or folder.name.startswith(name)):
                return folder
        return None

    def _wanted(self, name: str) -> Path:
        folder = self._named(name)
        if folder is None:
            raise DockerError(f"Error response from daemon: No such container: {name}")
        return folder

    def _config(self, folder: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((folder / "config.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def _pid(self, folder: Path) -> int:
        """Return the pid of a running container, 0 if it does not run."""
        try:
            pid, started = map(int, (folder / "pid").read_text().split())
        except (OSError, ValueError):
            return 0
        return pid if alive(pid, started) else 0


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _volume(text: str) -> tuple[str, str, bool]:
    """Parse `-v`: source, target and whether it is read-only. Raise DockerError."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not (parts[0].startswith("/") and parts[1].startswith("/")):
        raise DockerError(f"docker: invalid volume specification: '{text}'", CANNOT_START)
    if not Path(parts[0]).exists():
        Path(parts[0]).mkdir(parents=True)  # as docker does
    return parts[0], parts[1], parts[2:] == ["ro"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise DockerError(f"{message}\n(this is the stand-in for docker of a local cloud)", CANNOT_START)


def _parser() -> argparse.ArgumentParser:
    whole = _Parser(prog="docker", allow_abbrev=False)
    verbs = whole.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    run = verbs.add_parser("run", allow_abbrev=False)
    for flag in ("--rm", "--init", "--privileged"):
        run.add_argument(flag, action="store_true")
    run.add_argument("--network", "--net", choices=["host"], required=True)
    run.add_argument("--ipc", choices=["host", "private"])
    run.add_argument("--log-driver", choices=["none"])
    run.add_argument("--pull", choices=["never", "missing"])
    run.add_argument("-u", "--user", choices=["0", "0:0", "root"])
    for option in (("--name",), ("--entrypoint",), ("-w", "--workdir")):
        run.add_argument(*option)
    for option in (("-e", "--env"), ("-v", "--volume"), ("-l", "--label")):
        run.add_argument(*option, action="append", default=[])
    run.add_argument("image")
    run.add_argument("words", nargs=argparse.REMAINDER)
    inside = verbs.add_parser("exec", allow_abbrev=False)
    inside.add_argument("-i", "--interactive", action="store_true")
    inside.add_argument("-t", "--tty", action="store_true")
    inside.add_argument("--privileged", action="store_true")
    inside.add_argument("-u", "--user", choices=["0", "0:0", "root"])
    inside.add_argument("-w", "--workdir")
    inside.add_argument("-e", "--env", action="append", default=[])
    inside.add_argument("container")
    inside.add_argument("words", nargs=argparse.REMAINDER)
    pull = verbs.add_parser("pull", allow_abbrev=False)
    pull.add_argument("-q", "--quiet", action="store_true")
    pull.add_argument("image")
    ps = verbs.add_parser("ps", allow_abbrev=False)
    for option in (("-a", "--all"), ("-q", "--quiet"), ("--no-trunc",)):
        ps.add_argument(*option, action="store_true")
    ps.add_argument("-f", "--filter", action="append", default=[])
    kill = verbs.add_parser("kill", allow_abbrev=False)
    kill.add_argument("-s", "--signal", default="KILL")
    kill.add_argument("names", nargs="+")
    rm = verbs.add_parser("rm", allow_abbrev=False)
    rm.add_argument("-f", "--force", action="store_true")
    rm.add_argument("names", nargs="+")
    commit = verbs.add_parser("commit", allow_abbrev=False)
    commit.add_argument("container")
    commit.add_argument("name")
    image = verbs.add_parser("image", allow_abbrev=False).add_subparsers(dest="noun", required=True)
    image.add_parser("inspect", allow_abbrev=False).add_argument("image")
    image.add_parser("rm", allow_abbrev=False).add_argument("image")
    return whole


def main(words: list[str]) -> int:
    """Run a docker command; return its exit status."""
    verb = ""
    try:
        asked = _parser().parse_args(words[1:])
        docker, verb = Docker(Path(words[0]), os.environ), asked.verb
        verbs: dict[str, Callable[[argparse.Namespace], int]] = {
            "run": docker.run,
            "exec": docker.exec,
            "pull": docker.pull,
            "ps": docker.ps,
            "kill": docker.kill,
            "rm": docker.rm,
            "commit": docker.commit,
            "image": docker.rmi if verb == "image" and asked.noun == "rm" else docker.inspect,
        }
        return verbs[verb](asked)
    except DockerError as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START if verb == "run" else error.status


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
