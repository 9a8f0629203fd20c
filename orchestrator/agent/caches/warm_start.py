"""
Restore what earlier machines installed, compiled and downloaded; `keeper` stores it.

Nothing depends on it: `job.setup` runs on every machine and finds the packages installed. A missing, torn or
unsuitable cache only costs time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from orchestrator.agent.caches.cache_manifest import ENVIRONMENT, CacheManifest, Piece, manifest_name, parse
from orchestrator.agent.caches.pieces import OURS, PREFIX, CacheFile, files_below, leads_out
from orchestrator.agent.caches.places import (
    Cache,
    compiled,
    environment,
    folders,
    image_prefix,
    programs,
)
from orchestrator.agent.caches.unpacking import NewPaths, Unpacking, UnpackProcesses, merge
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.layout import read_json
from orchestrator.agent.machine.emulator_guard import is_local_machine
from orchestrator.agent.machine.venv import PYTHON
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import each, say
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent
from orchestrator.agent.telemetry.logs import JobLog
from orchestrator.contract.machine_errors import AgentError, DamagedError
from orchestrator.contract.phase import Phase
from orchestrator.contract.replacing import write_atomically

PARALLEL = 4
MAX_PROCESSES = 16
"""Processes that unpack on a machine with many processors."""
IMAGE_FILES = "image-files"
"""The folder for files of the image that restored ones have replaced."""
SETTLED = 5.0
"""Seconds without a change after which a file of a growing cache counts as finished."""
Files = Dict[str, List[int]]


class Caches:
    """The caches of one machine; *container* returns the digest of `job.image`, "" for none."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        bucket: JobBucket,
        heartbeat: HeartbeatContent,
        log: JobLog,
        container: Callable[[], str] = str,
    ) -> None:
        self._settings, self._environ, self._bucket = settings, environ, bucket
        self.moves = is_local_machine(environ)
        """Whether folders of another machine have other paths: only on a local cloud."""
        self._heartbeat, self._log, self._container = heartbeat, log, container
        self._state = settings.layout.status.parent
        self._given_up = False
        self.wanted: List[Cache] = []
        self.missing: Set[str] = set()
        """Names of caches that the bucket did not have when this machine began."""
        self.image: Files = {}
        self.programs_restored: Optional[int] = None

    def restore(self) -> None:
        """Restore the caches that fit this machine; on a failure report it once and continue without."""
        try:
            self.wanted = self._find()
            missing = [one for one in self.wanted if self._may_come(one)]
        except (AgentError, OSError, ValueError) as error:
            self._note(f"nothing is kept from machine to machine: {error}")
            return
        self._heartbeat.time("unpack_began")
        notes = [one for one in each(self.restore_one, missing, PARALLEL) if one]
        if notes:
            self._heartbeat.time("unpacked")
        for text in notes:
            self._note(text)
        self.programs_restored = len(programs(self._settings.layout))

    def has_restored_packages(self) -> bool:
        """Return whether this machine's packages come from an earlier one."""
        return bool(self.known(ENVIRONMENT).get("restored"))

    def discard(self) -> None:
        """Remove the restored packages, so that the setup installs them again. Raise OSError."""
        self._clear_environment()
        self._given_up = True
        for mark in self._state.glob("setup-*"):
            mark.unlink()

    def _find(self) -> List[Cache]:
        settings, layout = self._settings, self._settings.layout
        found: List[Cache] = []
        if settings.warm_start:
            prefix = self._prefix()
            first = self._state / "cache-image.json"
            if not first.exists() and not any(self._state.glob("setup-*")):
                # Before anything is installed: files of the image itself are not packed.
                now = {member: one.state for member, one in files_below(prefix).items()}
                write_atomically(first, json.dumps(now))
            self.image = read_json(first)
            own = environment(layout, self._environ, settings.setup, self.image, prefix, self._container())
            # A machine set up by an earlier release has no list of its image's files.
            if first.exists() and (settings.setup or self._environ.get(PYTHON)):
                found.append(own)
            found.append(compiled(layout, own))
        home = Path(self._environ.get("HOME") or "/root")
        return found + folders(settings.caches, self._environ, home, layout.root)

    def _prefix(self) -> Dict[str, Path]:
        """Return where the machine's Python installs; {} with `job.image`, whose packages are in the container."""
        return {} if self._settings.image else image_prefix(self._settings.layout, self._environ)

    def _may_come(self, cache: Cache) -> bool:
        """Return whether to restore a cache; never over packages that this machine has set up."""
        known = self.known(cache.name)
        if cache.name == ENVIRONMENT and known.get("moving"):
            self._clear_environment()
            known = {}
        if cache.name == ENVIRONMENT and any(self._state.glob("setup-*")):
            return False
        return not self._given_up and known.get("key") != cache.key

    def restore_one(self, cache: Cache) -> Optional[str]:
        """Restore one cache; return a message about it, None if the bucket has none."""
        name, began, generation = manifest_name(cache.name, cache.key), time.monotonic(), 0
        staged = {place: _incoming(path, cache.name) for place, path in cache.places.items()}
        try:
            held = self._bucket.read(name)
            if held is None:
                self.missing.add(cache.name)
                return None
            generation = held.generation
            manifest = parse(held.data, name)
            paths = self._check(cache, manifest)
            self._heartbeat.set(phase=Phase.SETUP, message=f"restoring {cache.title} from an earlier machine")
            self._unpack(cache, manifest, staged, paths)
            self._move(cache, manifest, staged, generation)
        except (AgentError, OSError, ValueError) as error:
            if cache.name == ENVIRONMENT and self.known(ENVIRONMENT).get("moving"):
                self._clear_environment()
            # Not retried on this disk; what this machine makes replaces it in the bucket.
            self.remember(cache.name, {"key": cache.key, "generation": generation, "files": {}})
            return (
                f"{cache.title} that an earlier machine kept cannot be used, and are created again: {error}"
            )
        finally:
            for folder in staged.values():
                shutil.rmtree(str(folder), ignore_errors=True)
        took = time.monotonic() - began
        return (
            f"{cache.title} of an earlier machine are back: {manifest.unpacked / 1e6:,.0f} MB in {took:.1f} s"
        )

    def _check(self, cache: Cache, manifest: CacheManifest) -> NewPaths:
        """
        Return the new paths on a local machine, whose root folder differs; elsewhere none.

        Raise DamagedError for a cache of another machine, image or Python.
        """
        if manifest.key != cache.key or dict(manifest.facts) != dict(cache.facts):
            raise DamagedError("it is of another machine, image or Python")
        here = {name: str(path) for name, path in cache.places.items()}
        if set(here) != set(manifest.places):
            raise DamagedError("it is of other folders")
        free = shutil.disk_usage(str(self._settings.layout.root)).free
        if manifest.unpacked + manifest.stored > free:
            raise DamagedError(
                f"it has {manifest.unpacked / 1e9:.1f} GB, and the disk has room for {free / 1e9:.1f}"
            )
        if here == dict(manifest.places):
            return NewPaths()
        # A virtual environment contains its own path, so it is unusable in another place.
        if not self.moves or manifest.fixed:
            raise DamagedError(
                f"it was in another place, {next(iter(manifest.places.values()))} {manifest.fixed}"
            )
        pairs = tuple((old, here[name]) for name, old in manifest.places.items())
        return NewPaths(pairs, manifest.naming)

    def _unpack(
        self, cache: Cache, manifest: CacheManifest, staged: Mapping[str, Path], paths: NewPaths
    ) -> None:
        """Verify and unpack all pieces into new folders beside their places."""
        for folder in staged.values():
            shutil.rmtree(str(folder), ignore_errors=True)  # Left over from an agent that was killed.
        archives = next(iter(staged.values())) / "archives"
        archives.mkdir(parents=True)
        most = min(max(PARALLEL, (os.cpu_count() or 2) // 2), MAX_PROCESSES)
        with contextlib.closing(UnpackProcesses(most)) as processes:

            def one(numbered: Tuple[int, Piece]) -> None:
                number, piece = numbered
                archive = archives / str(number)
                # Unpacked at once and deleted: after a power loss the start after it begins again.
                if self._bucket.download(piece.object, archive, piece.size, durable=False) != piece.sha256:
                    raise DamagedError(f"{piece.object} has another sha256 than its name")
                into = {name: str(folder / f"p{number}") for name, folder in staged.items()}
                processes.unpack(Unpacking(str(archive), piece, into, cache.inside, paths))
                archive.unlink()

            each(one, largest_first(manifest.pieces), most)

    def _move(
        self, cache: Cache, manifest: CacheManifest, staged: Mapping[str, Path], generation: int
    ) -> None:
        """Move everything to its place; after a kill in between, the next start sees the mark and starts over."""
        # Before the first move: after a kill, the next start removes the packages and restores them again.
        self.remember(cache.name, {"moving": True})
        for name, place in cache.places.items():
            parts = [staged[name] / f"p{number}" for number in range(len(manifest.pieces))]
            parts = [part for part in parts if part.is_dir()]
            if name == PREFIX:
                new = {member for part in parts for member in files_below({PREFIX: part})}
                self._keep_image_files(place, {*new, *manifest.removed} & set(self.image))
            for part in parts:
                merge(part, place)
        body = {
            "key": cache.key,
            "generation": generation,
            "restored": True,
            "manifest": json.loads(manifest.text()),
        }
        self.remember(
            cache.name, {**body, "files": {member: one.state for member, one in self.files(cache).items()}}
        )

    def _keep_image_files(self, prefix: Path, members: Set[str]) -> None:
        """Keep the image's files that restored ones replace, so that they can be put back."""
        for member in members:
            source = prefix / member.partition("/")[2]
            target = self._settings.layout.root / IMAGE_FILES / member
            # Never over an existing target: after an interrupted try, only that is still the image's own file.
            if os.path.lexists(str(source)) and not os.path.lexists(str(target)):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(str(source), str(target))

    def _clear_environment(self) -> None:
        """Remove all packages but those of the image. Raise OSError."""
        layout = self._settings.layout
        self.remember(ENVIRONMENT, {"moving": True})
        for name in ("venvs", "python", "pythons"):
            shutil.rmtree(str(layout.root / name), ignore_errors=True)
        prefix = self._prefix()
        for member, one in files_below(prefix).items():
            if member not in self.image:
                with contextlib.suppress(OSError):
                    (Path(one.path).rmdir if one.is_folder else Path(one.path).unlink)()
        saved = layout.root / IMAGE_FILES
        for member, one in files_below({PREFIX: saved / PREFIX}).items():
            target = prefix[PREFIX] / member.partition("/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(one.path, str(target))
        shutil.rmtree(str(saved), ignore_errors=True)
        self.remember(ENVIRONMENT, {})

    def files(self, cache: Cache) -> Dict[str, CacheFile]:
        """Return a cache's files without the image's own, files still being written, and links out of it."""
        found = files_below(cache.places)
        if cache.name == ENVIRONMENT:
            return {member: one for member, one in found.items() if self.image.get(member) != one.state}
        settled = (time.time() - SETTLED) * 1e9
        return {m: one for m, one in found.items() if one.modified < settled and not leads_out(one)}

    def known(self, name: str) -> Dict[str, Any]:
        """Return what this disk's state file says about a cache."""
        return read_json(self._state / f"cache-{name}.json")

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Store the state of a cache on this disk. Raise OSError."""
        write_atomically(self._state / f"cache-{name}.json", json.dumps(value))

    def _note(self, text: str) -> None:
        say(text)
        self._log.say(text)


def largest_first(pieces: Sequence[Piece]) -> List[Tuple[int, Piece]]:
    """Return the numbered pieces, so that a file of hundreds of megabytes is not unpacked alone at the end."""
    return sorted(enumerate(pieces), key=lambda one: one[1].unpacked, reverse=True)


def _incoming(folder: Path, cache: str) -> Path:
    """Return the folder to unpack in, on the same disk as *folder*, so that a rename can move the files."""
    while not folder.is_dir():
        folder = folder.parent
    return folder / f"{OURS}incoming-{cache}"
