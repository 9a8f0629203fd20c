"""
Run setup and job in the image of `job.image` with the machine's docker.

All machines of the deployment run the same image digest. The agent stays outside. The container sees the
machine folder and the folders of `job.caches` at the same paths, so the contract between job and agent is
unchanged. It has the machine's network and devices, as Google runs containers on TPU VMs (docs/facts.md 5.6).
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
from orchestrator.agent.machine.emulator_guard import FILES, for_setup, is_local_machine
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.agent.settings import Settings
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.bucket.object_names import IMAGES
from orchestrator.contract.image_names import host_of, is_googles, repository_of
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError, PreconditionError
from orchestrator.contract.replacing import replacing, write_atomically

OURS = ("PATH", "PWD", "OLDPWD", "SHLVL", "_", "SHELL", "USER", "LOGNAME", "TMPDIR", "MAIL")
"""Variables of the machine that make no sense in a container; `job.env` may still set them."""
OF_ATTEMPT = ("TPUCTL_JOB", "TPUCTL_ATTEMPT", "TPUCTL_RESUME", "TPUCTL_RESUME_STEP", "TPUCTL_PROGRESS_FILE",
              "TPUCTL_SAVE_EVERY_SECONDS", "TPUCTL_SAVE_EVERY_FILE")  # fmt: skip
"""Variables of one attempt; a program started by hand must not report steps of the job."""
PULL_TIMEOUT = 3600.0
"""Seconds for a pull or a commit of an image: tens of gigabytes over a slow link."""
TRIES = 3
PAUSES = Backoff(1.0, 4.0)
"""Seconds between tries at a registry; longer failures are left to the next attempt."""


class Container:
    """The image of the job, and the commands that run in it."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], bucket: JobBucket, metadata: Metadata
    ) -> None:
        self._settings, self._environ, self._bucket = settings, environ, bucket
        self._tokens = Tokens(metadata, optional=False)
        self.pinned = ""
        """The image with its digest, "" while it is unknown."""

    def digest(self) -> str:
        """Return the digest that all machines of the deployment run, "" while it is unknown."""
        return self.pinned.partition("@")[2]

    def pull(self) -> None:
        """
        Pull the image with the digest that all machines of this push use.

        Raise AgentError if that fails, TransientError for failures of the bucket.
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
                # Another worker has just pulled a newer image of this tag and recorded its digest.
                self._pull(pinned)
        self.pinned = pinned

    def known(self) -> bool:
        """Return whether a machine has pulled this image before: then a failure is not caused by the file."""
        return bool(self._read_pin())

    def argv(self, line: str, environ: Mapping[str, str], *, setup: bool) -> List[str]:
        """
        Return the docker command that runs *line* in the image; start it with *environ*.

        Values of variables are not part of the command, which every user of the machine can read.
        """
        layout, settings = self._settings.layout, self._settings
        words = [
            "docker", "run", "--init", "--privileged", "--network=host", "--ipc=host", "--user=0",
            "--log-driver=none", "--pull=never", f"--name={self.name}", f"--label={LABEL}={layout.root}",
            f"--workdir={layout.current}", "--entrypoint=bash",
        ]  # fmt: skip
        if not setup:
            words.append("--rm")
        words += [f"--volume={one}:{one}{mode}" for one, mode in self._mounts(environ)]
        words += [f"--env={name}" for name in _passed({*environ, "TINI_KILL_PROCESS_GROUP"}, environ)]
        image = self.pinned if setup or not settings.setup else self.after_setup
        # Written before the call: after a kill, the next agent knows that a container may exist.
        write_atomically(mark_of(layout), json.dumps({"name": self.name, "image": self.pinned}))
        return [*words, image, "-c", line]

    @property
    def name(self) -> str:
        """Return the container's name. It is always the same, so docker refuses a second container."""
        return name_of(self._settings)

    @property
    def after_setup(self) -> str:
        """Return the local name of the image that contains what the setup has installed."""
        text = f"{self.pinned}\0{self._settings.bundle}\0{self._settings.setup}"
        return f"tpuctl-setup:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"

    def is_set_up(self) -> bool:
        """Return whether this machine has the image with the setup's packages."""
        return self._inspected(self.after_setup) is not None

    def keep_setup(self) -> Optional[JobOutcome]:
        """Commit the container after the setup to an image; return an outcome if that fails, else None."""
        try:
            docker(["commit", self.name, self.after_setup], self._environ, PULL_TIMEOUT)
        except AgentError as error:
            return JobOutcome(JobOutcomeKind.FAILED, str(error))
        return None

    def _mounts(self, environ: Mapping[str, str]) -> List[Tuple[str, str]]:
        """Return the bind mounts of the container, each with the same path on both sides."""
        layout, saves = self._settings.layout, self._settings.checkpoints
        found = [layout.root, *(disk.resolve() for disk in layout.root.glob("disks/*") if disk.is_symlink())]
        if not saves.in_bucket:
            found.append(Path(saves.folder))
        with contextlib.suppress(AgentError):  # the caches report this error
            home = Path(self._environ.get("HOME") or "/root")
            found_caches = folders(self._settings.caches, self._environ, home, layout.root)
            found += [path for one in found_caches for path in one.places.values()]
        outside = [one for one in found if one == layout.root or layout.root not in one.parents]
        for one in outside:
            one.mkdir(parents=True, exist_ok=True)
        mounts = [(str(one), "") for one in outside]
        if is_local_machine(environ):
            mounts += [(environ[name], ":ro") for name in (*FILES, "SSL_CERT_FILE") if environ.get(name)]
        return list(dict.fromkeys(mounts))

    def _pull(self, name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tpuctl-docker-") as folder:
            config: Dict[str, Any] = {}
            if is_googles(name):
                # The token is in a file readable by root only, during the pull: never in a command line or a log.
                token = self._tokens.headers()["Authorization"].partition(" ")[2]
                auth = base64.b64encode(f"oauth2accesstoken:{token}".encode()).decode()
                config = {"auths": {host_of(name): {"auth": auth}}}
            with replacing(Path(folder) / "config.json", 0o600) as file:
                file.write(json.dumps(config).encode())
            environ = dict(for_setup(self._environ), DOCKER_CONFIG=folder)
            retried(
                lambda: docker(["pull", "--quiet", name], environ, PULL_TIMEOUT),
                (AgentError,),
                PAUSES,
                tries=TRIES,
                now=time.monotonic,
                wait=time.sleep,  # A busy registry needs real time.
            )

    def _inspected(self, name: str) -> Optional[Mapping[str, Any]]:
        try:
            found = json.loads(docker(["image", "inspect", name], self._environ))
        except (AgentError, ValueError):
            return None
        return found[0] if found else None

    def _pin(self) -> str:
        """Return the image by the digest that its tag now means; the first machine records it. Raise AgentError."""
        found = self._inspected(self._settings.image) or {}
        names = [str(one) for one in found.get("RepoDigests") or []]
        # An image may come from several repositories; use the digest of the one that the file names.
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
        # Keyed by push: after a new push the tag is resolved again.
        text = f"{self._settings.image}\0{self._settings.bundle}\0{self._settings.settings_digest}"
        return f"{IMAGES}{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def name_of(settings: Settings) -> str:
    """Return the container's name for this machine's job."""
    return f"tpuctl-{settings.deployment}-{settings.incarnation}"


def beside(settings: Settings, line: Optional[str], environ: Mapping[str, str]) -> List[str]:
    """
    Return the command that runs *line*, or a shell, in the job's running container; start it with *environ*.

    Variables of the attempt are cleared. Raise AgentError if the container does not run.
    """
    name = name_of(settings)
    asked = ["ps", "--quiet", "--no-trunc", f"--filter=label={LABEL}={settings.layout.root}"]
    if not docker(asked, environ).split():
        raise AgentError("the container of the job does not run now; --home opens the machine")
    # Also cleared: TPUCTL_JOB, since processes with that mark are killed as the job's.
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
    """Return those of *names* that make sense in a container."""
    mine = set(environ.get("TPUCTL_JOB_ENV", "").split())
    return [name for name in sorted(names) if name in mine or name not in OURS]
