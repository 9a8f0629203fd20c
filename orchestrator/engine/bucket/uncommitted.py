"""List the files in the bucket that no checkpoint contains, which agents uploaded before their machines ended."""

from dataclasses import dataclass

from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.object_names import UNCOMMITTED
from orchestrator.contract.bucket.uncommitted_manifest import (
    RescueMoment,
    UncommittedManifest,
    parse,
    parse_name,
)
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.domain.ports import Store
from orchestrator.engine.bucket.bounded_read import read_first
from orchestrator.engine.bucket.fetch import Download, inside
from orchestrator.errors import NotFoundError

MAX_FOLDERS = 8
"""Top folders of the bucket that are listed one by one."""
WORDS = {
    RescueMoment.UNCOMMITTED: "the job ended with status 0 and no checkpoint",
    RescueMoment.BESIDE: "they lay beside the checkpoints of a job that is done",
    RescueMoment.FAILED: "the job was given up",
    RescueMoment.NOTICE: "the machine was taken away",
}


@dataclass(frozen=True)
class UncommittedFiles:
    """The uncommitted files of one incarnation, from all of its workers."""

    incarnation: int
    manifests: tuple[UncommittedManifest, ...]

    @property
    def complete(self) -> bool:
        """Return whether every worker has uploaded all of its files."""
        workers = {one.worker for one in self.manifests}
        return workers == set(range(self.manifests[0].workers)) and all(
            one.complete for one in self.manifests
        )

    @property
    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(one.size for one in self.manifests)

    @property
    def count(self) -> int:
        """Return the number of files of all workers."""
        return sum(len(one.files) for one in self.manifests)

    @property
    def moment_text(self) -> str:
        """Return, in words, when the files were uploaded."""
        return WORDS[self.manifests[0].moment]

    def as_dict(self) -> dict[str, object]:
        """Return what `tpuctl checkpoints list --json` prints."""
        return {
            "incarnation": self.incarnation,
            "complete": self.complete,
            "moment": self.manifests[0].moment.value,
            "at": max(one.at for one in self.manifests),
            "bytes": self.size,
            "files": [stored.name for one in self.manifests for stored in one.files],
            "skipped": [
                {"name": s.name, "reason": s.reason.value} for one in self.manifests for s in one.skipped
            ],
        }


def read_uncommitted(store: Store) -> list[UncommittedFiles]:
    """
    Return the uncommitted files, newest incarnation first; empty without a bucket. Raise TpuctlError.

    Unreadable manifests are ignored; of more than the limit, the newest incarnations are read.
    """
    try:
        held = [(place, one) for one in store.list(UNCOMMITTED) if (place := parse_name(one.name))]
    except NotFoundError:
        return []
    newest = [one for _, one in sorted(held, key=lambda pair: pair[0], reverse=True)]
    bodies = read_first(store, newest, limits.MANIFESTS)
    found: dict[int, list[UncommittedManifest]] = {}
    for name, body in bodies.items():
        try:
            one = parse(body.data, name) if body is not None else None
        except DamagedError:
            continue
        if one is not None and (one.incarnation, one.worker) == parse_name(name) and one.files:
            found.setdefault(one.incarnation, []).append(one)
    return [
        UncommittedFiles(number, tuple(sorted(found[number], key=lambda one: one.worker)))
        for number in sorted(found, reverse=True)
    ]


def chosen(found: list[UncommittedFiles], incarnation: int | None) -> UncommittedFiles:
    """Return the newest files, or those of *incarnation*; raise NotFoundError if there are none."""
    match = [one for one in found if incarnation in {None, one.incarnation}]
    if match:
        return match[0]
    whose = "" if incarnation is None else f" of TPU #{incarnation}"
    raise NotFoundError(
        f"there are no uncommitted files{whose}",
        hint="see: tpuctl checkpoints",
        changed="nothing was written",
    )


def download_of(store: Store, one: UncommittedFiles) -> Download:
    """
    Return the download for uncommitted files; with several workers each one has its own folder.

    Sizes are those in the bucket, because a manifest may claim anything and the disk needs the real room.
    Raise UsageError for a name that leads out of the folder, TpuctlError if the bucket cannot be read.
    """
    several = len(one.manifests) > 1 or one.manifests[0].workers > 1
    files = [stored for manifest in one.manifests for stored in manifest.files]
    # A file may lie in no folder at all; then its own name is listed.
    above = {"".join(stored.object.partition("/")[:2]) for stored in files}
    prefixes = sorted(above) if len(above) <= MAX_FOLDERS else [""]
    held = {found.name: found.size for prefix in prefixes for found in store.list(prefix)}
    return Download(
        what=f"the files that TPU #{one.incarnation} left behind",
        size=sum(held.get(stored.object, 0) for stored in files),
        files=tuple(
            (
                stored.object,
                stored.sha256,
                # A manifest is written by a machine, so a name that leads out of the folder is refused.
                inside(f"w{manifest.worker}/{stored.name}" if several else stored.name),
            )
            for manifest in one.manifests
            for stored in manifest.files
        ),
        details={"uncommitted": True, "incarnation": one.incarnation, "complete": one.complete},
        several=True,
        again="copy the rest by hand with: gcloud storage cp -r",
    )
