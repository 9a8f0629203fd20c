"""
List the checkpoints in the bucket: which are complete, and which one the next start resumes from.

Completeness is judged by `contract`, by the same code as on the machines.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from orchestrator import threads
from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.completeness import judge
from orchestrator.contract.bucket.manifest import file_name, parse_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS
from orchestrator.contract.formats.base import BucketSave, Listing
from orchestrator.contract.formats.choose import format_of
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.ports import Store, StoredObject
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.engine.bucket.bounded_read import read_first

PARALLEL = 8
# Eight digits at least: steps are written with leading zeros, so that names sort as numbers do.
_COMMITTED = re.compile(rf"{CHECKPOINTS}(\d{{8,15}})/g(\d{{1,9}})/")
_ASIDE = re.compile(r"\.manifest\.json\.(suspect|torn|replaced)")
_WHY_ASIDE = {
    "suspect": "set aside: every start from it ended alike",
    "torn": "set aside: its bytes were not what its manifest says",
    "replaced": "set aside: single files, saved before the job's own format was recognised",
}


def read_checkpoints(store: Store, spec: CheckpointSpec) -> list[BucketCheckpoint]:
    """
    Return all checkpoints, newest first; the next start resumes from the first complete one.

    Raise TpuctlError if the bucket cannot be read.
    """
    held = store.list(CHECKPOINTS)
    found = _written_by_the_job(store, spec, held) if spec.dir == "bucket" else _committed(store, held)
    return sorted(found, key=lambda one: (one.step, one.incarnation or 0), reverse=True)


def damage_of(store: Store, checkpoint: BucketCheckpoint) -> list[str]:
    """Read every byte of a checkpoint, in parallel, and return a line for each difference from its manifest."""

    def damage(named: tuple[str, str]) -> str:
        name, wanted = named
        found = store.sha256(name)
        if found is None:
            return f"{name} is missing"
        return "" if wanted in {"", found} else f"{name} has another sha256 than its manifest says"

    with threads.pool(PARALLEL) as pool:
        # Reads everything, which is slow and may cost traffic, so no pass calls it.
        return [text for text in pool.map(damage, checkpoint.objects) if text]


def _committed(store: Store, held: list[StoredObject]) -> Iterator[BucketCheckpoint]:
    """Yield the checkpoints that agents have committed or begun to upload."""
    groups: dict[tuple[int, int], list[StoredObject]] = defaultdict(list)
    for one in held:
        match = _COMMITTED.match(one.name)
        if match:
            groups[int(match[1]), int(match[2])].append(one)
    newest = [one for key in sorted(groups, reverse=True) for one in groups[key] if parse_name(one.name)]
    bodies = read_first(store, newest, limits.MANIFESTS)
    for (step, incarnation), group in groups.items():
        mine = [one.name for one in group if parse_name(one.name)]
        read = {name: body.data if (body := bodies.get(name)) else None for name in mine}
        verdict = judge({one.name: one.size for one in group}, read)
        message = verdict.message
        # Unreadable is not missing: it is reported as such, because the checkpoint may be complete.
        if verdict.checkpoint is None and any(name not in bodies for name in mine):
            message = message or "there are too many manifests: not all were read"
        elif verdict.checkpoint is None and not verdict.manifests:
            message = message or _aside(group)
        wanted = {
            file_name(step, incarnation, one.worker, file.name): file.sha256
            for one in verdict.manifests
            for file in one.files
        }
        payload = [one for one in group if "/w" in one.name and ".manifest.json" not in one.name]
        yield BucketCheckpoint(
            step=step,
            incarnation=incarnation,
            workers=max((one.workers for one in verdict.manifests), default=0),
            size=sum(one.size for one in group if one.name in wanted) or sum(one.size for one in payload),
            # Without the manifests: they are written again when a checkpoint is set aside or put back.
            saved_at=max(one.updated for one in payload or group),
            complete=verdict.checkpoint is not None,
            message=message,
            objects=tuple(wanted.items()),
            format=next((one.format for one in verdict.manifests), ""),
            counted=not all(one.proven for one in verdict.manifests),
        )


def _aside(group: list[StoredObject]) -> str:
    marks = [match[1] for match in (_ASIDE.search(one.name) for one in group) if match]
    return _WHY_ASIDE[marks[0]] if marks else "no manifest: the upload did not end"


def _written_by_the_job(
    store: Store, spec: CheckpointSpec, held: list[StoredObject]
) -> Iterator[BucketCheckpoint]:
    """Yield the checkpoints that the framework wrote to the bucket itself, judged by their object names."""
    by_name = {one.name[len(CHECKPOINTS) :]: one for one in held}
    names = sorted(by_name)
    format_ = format_of(spec.format, spec.marker)
    for save in list(format_.stored(_level(names, by_name, "", _reader(store)))):
        mine = [by_name[name] for name in _belonging(names, by_name, save)]
        yield BucketCheckpoint(
            step=save.step,
            incarnation=None,
            workers=0,
            size=sum(one.size for one in mine),
            saved_at=max((one.updated for one in mine), default=0.0),
            complete=save.complete,
            message="" if save.complete else save.message,
            objects=tuple((one.name, "") for one in mine),
            format=format_.chosen,
        )


def _belonging(names: list[str], known: Collection[str], save: BucketSave) -> list[str]:
    """Return the objects of a save. Outputs have no folder for each step, so all objects belong to it."""
    if not save.name:
        return names
    if save.objects:
        return [name for name in dict.fromkeys(save.objects) if name in known]
    return [names[n] for start in (f"{save.name}.", f"{save.name}/") for n in _below(names, start)]


def _below(names: list[str], start: str) -> range:
    """Return the index range of sorted *names* that begin with *start*, by bisection: there may be very many."""
    end = start[:-1] + chr(ord(start[-1]) + 1) if start else ""
    return range(bisect_left(names, start), bisect_left(names, end) if end else len(names))


def _level(
    names: list[str], known: Collection[str], above: str, read: Callable[[str], bytes | None]
) -> Listing:
    """Return one folder level of the bucket, computed from the sorted names of all objects."""
    files: list[str] = []
    folders: list[str] = []
    here = _below(names, above)
    at = here.start
    while at < here.stop:
        name, slash, _ = names[at][len(above) :].partition("/")
        (folders if slash else files).append(name + slash)
        at = _below(names, above + name + slash).stop if slash else at + 1
    return Listing(
        tuple(files),
        tuple(folders),
        has=lambda name: above + name in known,
        read=lambda name: read(above + name),
        below=lambda folder: _level(names, known, above + folder, read),
    )


def _reader(store: Store) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        found = store.read(CHECKPOINTS + name, limit=limits.POINTER)
        return found.data if found is not None else None

    return read
