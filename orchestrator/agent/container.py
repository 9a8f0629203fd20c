"""
`job.image`: the machine's docker runs setup and job, and every machine of the deployment the same bytes.

The agent stays outside. A container sees the machine folder and the folders of `job.caches` at the paths that
they have outside, so nothing of what job and agent agree on changes. It has the machine's network and devices, as
Google runs containers on TPU VMs (docs/facts.md 5.6).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from orchestrator.agent.caches.places import folders
from orchestrator.agent.cloud.metadata import Metadata, Tokens
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.machine.docker import LABEL, docker, mark_of
from orchestrator.agent.outcome import JobOutcome, JobVerdict
from orchestrator.agent.rehearsal import FILES, for_setup, is_rehearsal
from orchestrator.agent.settings import Settings
from orchestrator.contract.image_names import host_of, is_googles, repository_of
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError, PreconditionError
from orchestrator.contract.object_names import IMAGES
from orchestrator.contract.replacing import replacing, write_atomically

OURS = ("PATH", "PWD", "OLDPWD", "SHLVL", "_", "SHELL", "USER", "LOGNAME", "TMPDIR", "MAIL")
"""Variables of the machine that mean nothing in a container; `job.env` may set them all the same."""
OF_ATTEMPT = ("TPUCTL_JOB", "TPUCTL_ATTEMPT", "TPUCTL_RESUME", "TPUCTL_RESUME_STEP", "TPUCTL_PROGRESS_FILE",
              "TPUCTL_SAVE_EVERY_SECONDS", "TPUCTL_SAVE_EVERY_FILE")  # fmt: skip
"""Variables of one attempt of the job: a program that is run by hand must not report the job's steps."""
PULL_SECONDS = 3600.0
TRIES = 3
BUSY_SECONDS = 1.0
"""Between tries at a registry; a longer trouble is for the next attempt of the job."""


class Container:
    """Bring the image of the job, and say how to run in it."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], bucket: JobBucket, metadata: Metadata
    ) -> None:
        self._settings, self._environ, self._bucket = settings, environ, bucket
        self._tokens = Tokens(metadata, optional=False)
        self.pinned = ""
        """The image by its digest, empty before it is known."""

    def digest(self) -> str:
        """Return the digest that all machines of the deployment run, empty before it is known."""
        return self.pinned.partition("@")[2]

    def bring(self) -> None:
        """
        Pull the image, as every machine of this push has it.

        Raises AgentError when that cannot be done, TransientError from the bucket.
        """
        if shutil.which("docker") is None:
            raise AgentError(f"job.image is {self._settings.image}, and this machine has no docker")
        pinned = self._read_pin()
        name = pinned or self._settings.image
        if not pinned or not self._inspected(pinned):
            self._pull(name)
        if not pinned:
            pinned = self._pin()
            if not self._inspected(pinned):
                # Another worker has pulled a newer image of this tag a moment before.
                self._pull(pinned)
        self.pinned = pinned

    def known(self) -> bool:
        """Say whether a machine has pulled this image before, so that a failure now is not the file's fault."""
        return bool(self._read_pin())

    def argv(self, line: str, environ: Mapping[str, str], *, setup: bool) -> List[str]:
        """
        Return the command that runs *line* in the image; it has to be started with *environ*.

        Values never stand in it: anybody on the machine could read them there.
        """
        layout, settings = self._settings.layout, self._settings
        words = [
            "docker", "run", "--init", "--privileged", "--network=host", "--ipc=host", "--user=0",
            "--log-driver=none", "--pull=never", f"--name={self.name}", f"--label={LABEL}={layout.root}",
            f"--workdir={layout.current}", "--entrypoint=bash",
        ]  # fmt: skip
        if not setup:
            words.append("--rm")
        words += [f"--volume={one}:{one}{mode}" for one, mode in self._places(environ)]
        words += [f"--env={name}" for name in _passed({*environ, "TINI_KILL_PROCESS_GROUP"}, environ)]
        image = self.pinned if setup or not settings.setup else self.after_setup
        # Written before the call, so that whoever comes after a kill knows that there may be a container.
        write_atomically(mark_of(layout), json.dumps({"name": self.name, "image": self.pinned}))
        return [*words, image, "-c", line]

    @property
    def name(self) -> str:
        """Return the name of the one container: docker refuses a second one, whoever starts it."""
        return name_of(self._settings)

    @property
    def after_setup(self) -> str:
        """Return the name on this machine of the image with what the setup has installed."""
        text = f"{self.pinned}\0{self._settings.bundle}\0{self._settings.setup}"
        return f"tpuctl-setup:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"

    def is_set_up(self) -> bool:
        """Say whether this machine has the image with what the setup has installed."""
        return self._inspected(self.after_setup) is not None

    def keep_setup(self) -> Optional[JobOutcome]:
        """Make an image of what the setup has left; return how the attempt ends if that cannot be done."""
        try:
            docker(["commit", self.name, self.after_setup], self._environ, PULL_SECONDS)
        except AgentError as error:
            return JobOutcome(JobVerdict.FAILED, str(error))
        return None

    def _places(self, environ: Mapping[str, str]) -> List[Tuple[str, str]]:
        """Return what the container sees of the machine, at the same paths."""
        layout, saves = self._settings.layout, self._settings.checkpoints
        found = [layout.root, *(disk.resolve() for disk in layout.root.glob("disks/*") if disk.is_symlink())]
        if not saves.in_bucket:
            found.append(Path(saves.folder))
        with contextlib.suppress(AgentError):  # which the caches tell
            home = Path(self._environ.get("HOME") or "/root")
            found_caches = folders(self._settings.caches, self._environ, home, layout.root)
            found += [place for one in found_caches for place in one.places.values()]
        outside = [one for one in found if one == layout.root or layout.root not in one.parents]
        for one in outside:
            one.mkdir(parents=True, exist_ok=True)
        places = [(str(one), "") for one in outside]
        if is_rehearsal(environ):
            places += [(environ[name], ":ro") for name in (*FILES, "SSL_CERT_FILE") if environ.get(name)]
        return list(dict.fromkeys(places))

    def _pull(self, name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tpuctl-docker-") as folder:
            config: Dict[str, Any] = {}
            if is_googles(name):
                # In a file that only root reads, for as long as the pull lasts: neither in a command nor in a log.
                token = self._tokens.headers()["Authorization"].partition(" ")[2]
                auth = base64.b64encode(f"oauth2accesstoken:{token}".encode()).decode()
                config = {"auths": {host_of(name): {"auth": auth}}}
            with replacing(Path(folder) / "config.json", 0o600) as file:
                file.write(json.dumps(config).encode())
            environ = dict(for_setup(self._environ), DOCKER_CONFIG=folder)
            for remaining in reversed(range(TRIES)):
                try:
                    docker(["pull", "--quiet", name], environ, PULL_SECONDS)
                except AgentError:
                    if not remaining:
                        raise
                    time.sleep(BUSY_SECONDS)
                else:
                    return

    def _inspected(self, name: str) -> Optional[Mapping[str, Any]]:
        try:
            found = json.loads(docker(["image", "inspect", name], self._environ))
        except (AgentError, ValueError):
            return None
        return found[0] if found else None

    def _pin(self) -> str:
        """Write down which image the tag means, unless another machine has; return it by its digest."""
        found = self._inspected(self._settings.image) or {}
        names = [str(one) for one in found.get("RepoDigests") or []]
        # An image may have come from two places; the digest is of the place that the file names.
        mine = [one for one in names if one.partition("@")[0] == repository_of(self._settings.image)]
        if not mine:
            raise AgentError(f"docker does not say which digest {self._settings.image} has: {names}")
        body = json.dumps({"image": self._settings.image, "pinned": mine[0]}).encode()
        try:
            self._bucket.write(self._pin_name(), body, if_generation=0)
        except PreconditionError:
            return self._read_pin()
        return mine[0]

    def _read_pin(self) -> str:
        if "@sha256:" in self._settings.image:
            return self._settings.image
        held = self._bucket.read(self._pin_name())
        return str((json_value(held.data) or {}).get("pinned", "")) if held else ""

    def _pin_name(self) -> str:
        # Of the push: what is pushed anew takes what the tag means then.
        text = f"{self._settings.image}\0{self._settings.bundle}\0{self._settings.settings_digest}"
        return f"{IMAGES}{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def name_of(settings: Settings) -> str:
    """Return the name of the container of this machine's job."""
    return f"tpuctl-{settings.deployment}-{settings.incarnation}"


def beside(settings: Settings, line: Optional[str], environ: Mapping[str, str]) -> List[str]:
    """
    Return the command that runs *line*, or a shell, in the container of the job; to be started with *environ*.

    What the container has of one attempt is left out. Raises AgentError where the container does not run.
    """
    name = name_of(settings)
    asked = ["ps", "--quiet", "--no-trunc", f"--filter=label={LABEL}={settings.layout.root}"]
    if not docker(asked, environ).split():
        raise AgentError("the container of the job does not run now; --home opens the machine")
    # Emptied, too: by the mark of a job its processes are found and killed.
    words = [
        "docker",
        "exec",
        "--interactive",
        "--privileged",
        "--user=0",
        f"--workdir={settings.layout.current}",
    ]
    words += ["--tty"] if sys.stdin.isatty() else []
    words += [f"--env={one}=" for one in OF_ATTEMPT]
    words += [f"--env={one}" for one in _passed(set(environ) - set(OF_ATTEMPT), environ)]
    leave = f'unset {" ".join(OF_ATTEMPT)}; exec bash "$@"'
    return [*words, name, "bash", "-c", leave, "bash", *(["-c", line] if line else [])]


def _passed(names: Set[str], environ: Mapping[str, str]) -> List[str]:
    """Return those of *names* that mean something in a container."""
    mine = set(environ.get("TPUCTL_JOB_ENV", "").split())
    return [name for name in sorted(names) if name in mine or name not in OURS]
