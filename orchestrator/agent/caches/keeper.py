"""Store what this machine has installed, compiled and downloaded, while its job runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from typing import Any, Dict, List, Mapping, Set, Tuple

from orchestrator.agent.caches.cache_manifest import (
    FOLDER,
    MAX_BYTES,
    MAX_FILES,
    PIECES,
    RETAINED,
    CacheManifest,
    cache_of,
    manifest_name,
    parse,
)
from orchestrator.agent.caches.pieces import (
    OURS,
    PREFIX,
    CacheFile,
    PackedPiece,
    files_below,
    in_pieces,
    pack,
)
from orchestrator.agent.caches.places import Cache, programs
from orchestrator.agent.caches.warm_start import PARALLEL, Caches, Files
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.cloud.transport import seconds_of
from orchestrator.agent.end_requests import EndRequests
from orchestrator.agent.save_interval_tracker import HEARTBEATS
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import each
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent
from orchestrator.agent.telemetry.logs import JobLog
from orchestrator.contract.bucket.limits import IN_MEMORY
from orchestrator.contract.bucket.object_names import CACHES
from orchestrator.contract.clock import Clock
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError
from orchestrator.contract.phase import Phase

AFTER_START = 60.0
"""Seconds after the start of a job without steps after which its packages are stored."""
MAX_TIMES = 3
"""Times that one machine stores its packages, so that a job which keeps changing them cannot fill the bucket."""
MANY = 64
"""Pieces of a cache after which it is packed again as a whole."""
A_DAY = 86_400.0
LOWEST = 19
"""The nice value of packing."""


class CacheKeeper:
    """Packs and uploads new files of this machine's caches; *shared* caches are also filled by other machines."""

    def __init__(
        self,
        settings: Settings,
        bucket: JobBucket,
        caches: Caches,
        heartbeat: HeartbeatContent,
        log: JobLog,
        end_requests: EndRequests,
        clock: Clock,
        *,
        shared: bool = False,
    ) -> None:
        self._settings, self._bucket, self._caches = settings, bucket, caches
        self._shared, self._clock = shared, clock
        self._heartbeat, self._log, self._end_requests = heartbeat, log, end_requests
        self._checked_at = 0.0

    def keep(self) -> None:
        """Store what is new since the last call; called periodically by a thread of its own."""
        heartbeat, timings = self._heartbeat, self._heartbeat.body()["timings"]
        if heartbeat.get("phase") != Phase.RUN or "spawned" not in timings:
            return
        waited = self._clock.now() - timings["spawned"]
        if "first_step" not in timings and waited < AFTER_START:
            return
        back = self._caches.programs_restored
        if back is not None:
            now = len(programs(self._settings.layout))
            heartbeat.set(xla_programs_restored=back, xla_programs_compiled=max(0, now - back))
        rests = self._clock.monotonic() - self._checked_at < HEARTBEATS * self._settings.heartbeat_interval
        # All workers have the same caches, so worker 0 alone stores them.
        if self._settings.worker or (self._checked_at and rests):
            return
        _yield_to_the_job()
        for cache in self._caches.wanted:
            try:
                message = self.store(cache)
            except (AgentError, OSError) as error:
                # The seconds of a notice belong to the checkpoint: that is no fault that anybody could mend.
                message = "" if self._is_ending() else str(error)
            heartbeat.warn(f"keep {cache.title}", message)
        self._checked_at = self._clock.monotonic()

    def store(self, cache: Cache) -> str:
        """Store one cache if it has changed; return what prevents it, "" for nothing."""
        now, known = self._caches.files(cache), self._caches.known(cache.name)
        files: Files = known.get("files", {}) if known.get("key") == cache.key else {}
        new = [one for member, one in now.items() if files.get(member) != one.state]
        gone = [member for member in files if member not in now]
        if not cache.grows:
            # Python writes these at the first import; they alone do not make a new environment.
            new = [one for one in new if "__pycache__" not in one.member]
            gone = [member for member in gone if "__pycache__" not in member]
        if not new and not gone:
            return ""
        if self._shared and not files and self._made_meanwhile(cache, now):
            return ""
        if not cache.grows and files and known.get("times", 0) >= MAX_TIMES:
            return ""
        total = sum(one.size for one in now.values())
        if total > MAX_BYTES or len(now) > MAX_FILES:
            most = f"at most {MAX_BYTES / 1e9:.0f} GB in {MAX_FILES:,} are kept"
            return f"{total / 1e9:.1f} GB in {len(now):,} files; {most}"
        before = parse(json.dumps(known["manifest"]).encode(), "state") if known.get("manifest") else None
        same = cache.grows and bool(files) and not gone and not any(one.member in files for one in new)
        had = before if same and before is not None and len(before.pieces) < MANY else None
        packed = self._packed(cache, list(now.values()) if had is None else new)
        fixed = [one.fixed for one in packed if one.fixed]
        image = {PREFIX: cache.places[PREFIX]} if PREFIX in cache.places else {}
        manifest = CacheManifest(
            key=cache.key,
            places={name: str(path) for name, path in cache.places.items()},
            facts=cache.facts,
            pieces=(*(had.pieces if had else ()), *(one.piece for one in packed)),
            removed=tuple(sorted(set(self._caches.image) - set(files_below(image)))) if image else (),
            naming=(*(had.naming if had else ()), *(name for one in packed for name in one.naming)),
            fixed=fixed[0] if fixed else had.fixed if had else "",
        )
        self._publish(cache, manifest, known, {member: one.state for member, one in now.items()})
        return ""

    def _made_meanwhile(self, cache: Cache, now: Mapping[str, CacheFile]) -> bool:
        """Return whether another machine has stored the same cache meanwhile; if so, record it as known."""
        held = (
            self._bucket.read(manifest_name(cache.name, cache.key))
            if cache.name in self._caches.missing
            else None
        )
        if held is None:
            return False
        manifest = parse(held.data, cache.name)
        body = {
            "key": cache.key,
            "times": 1,
            "generation": held.generation,
            "manifest": json.loads(manifest.text()),
        }
        self._caches.remember(
            cache.name, {**body, "files": {member: one.state for member, one in now.items()}}
        )
        return True

    def _publish(self, cache: Cache, manifest: CacheManifest, known: Mapping[str, Any], files: Files) -> None:
        """Write the manifest, which makes the pieces valid, then delete old keys."""
        name, data = manifest_name(cache.name, cache.key), manifest.text().encode()
        if len(data) > IN_MEMORY:
            raise AgentError(f"its manifest would have {len(data):,} bytes")
        generation = known.get("generation", 0) if known.get("key") == cache.key else 0
        try:
            made = self._bucket.write(name, data, generation)
        except PreconditionError:
            held = self._bucket.read(name)
            same = held is not None and held.data == data
            # Another machine was first, or our own first request had arrived. If the content differs, the
            # next call compares everything again.
            made, files = held.generation if held is not None else 0, files if same else {}
        times = known.get("times", 0) + 1 if known.get("key") == cache.key else 1
        body = {"key": cache.key, "times": times, "generation": made, "restored": bool(known.get("restored"))}
        self._caches.remember(cache.name, {**body, "files": files, "manifest": json.loads(manifest.text())})
        size = f"{manifest.unpacked / 1e6:,.0f} MB, compressed to {manifest.stored / 1e6:,.0f} MB"
        self._log.say(f"{cache.title} are kept for the next machine: {size}")
        self._retain()

    def _packed(self, cache: Cache, files: List[CacheFile]) -> List[PackedPiece]:
        """Pack and upload files in pieces. Raise DamagedError for a file that changes; the next call packs it."""
        paths = [os.fsencode(str(p)) for p in cache.places.values()] if self._caches.moves else []
        folder = self._settings.layout.root / f"{OURS}pack"
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.mkdir()

        def one(numbered: Tuple[int, List[CacheFile]]) -> PackedPiece:
            number, part = numbered
            _yield_to_the_job()
            packed = pack(part, folder / str(number), paths, self._may_go_on)
            # Pieces are named by content, so one that an earlier try or another machine has sent is the same.
            if self._bucket.stat(packed.piece.object) is None:
                sent = self._bucket.upload(packed.piece.object, packed.path, packed.piece.size)
                if sent != packed.piece.sha256:
                    raise DamagedError(f"{packed.path} changed while it was sent")
            packed.path.unlink()
            return packed

        try:
            return each(
                one, list(enumerate(in_pieces(files))), max(1, min(PARALLEL, (os.cpu_count() or 2) // 2))
            )
        finally:
            shutil.rmtree(str(folder), ignore_errors=True)

    def _may_go_on(self) -> None:
        """Raise AgentError after a preemption notice, whose seconds belong to the checkpoint."""
        if self._is_ending():
            raise AgentError("the machine is about to go")

    def _is_ending(self) -> bool:
        return self._end_requests.ended_at is not None or bool(self._heartbeat.get("notice"))

    def _retain(self) -> None:
        """Delete the oldest keys of each cache, and pieces older than a day that no manifest names."""
        items, _ = self._bucket.first_page(CACHES, deep=True)
        _age, now = self._bucket.age(CACHES)
        wanted = {one.name for one in self._caches.wanted}
        held = sorted(
            (i for i in items if cache_of(i["name"])), key=lambda i: str(i["updated"]), reverse=True
        )
        used: Set[str] = set()
        count: Dict[str, int] = {}
        for item in held:
            cache = cache_of(item["name"])
            count[cache] = count.get(cache, 0) + 1
            old = now - seconds_of(str(item["updated"])) > A_DAY
            body = self._bucket.read(item["name"])
            try:
                pieces = parse(body.data, item["name"]).pieces if body is not None else ()
            except DamagedError:
                pieces, count[cache] = (), RETAINED + 1
            if count[cache] > RETAINED or (cache.startswith(FOLDER) and cache not in wanted and old):
                self._bucket.delete(item["name"], int(item["generation"]))
            else:
                used |= {one.object for one in pieces}
        for item in items:
            # Another machine may have uploaded this piece and not yet written its manifest.
            old = now - seconds_of(str(item["updated"])) > A_DAY
            if item["name"].startswith(PIECES) and item["name"] not in used and old:
                self._bucket.delete(item["name"], int(item["generation"]))


def _yield_to_the_job() -> None:
    """Lower the priority of this thread and of the zstd processes that it starts."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
