"""Survey the source folder without reading its files: what is sent, what is excluded, what is refused."""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.app.source.patterns import PatternReason, Patterns, PatternVerdict, first_patterns
from orchestrator.contract.bucket.object_names import FETCHED
from orchestrator.domain.source.excluded_paths import ExcludedPath
from orchestrator.domain.source.key_files import SMALL, keys_in
from orchestrator.errors import UsageError

MAX_BYTES = 512 * 1024 * 1024
COUNTED = 20_000
"""Files that are counted in an excluded folder; beyond that it is reported as larger."""
SHOWN = 20
"""Reasons for a refusal that are listed at most."""
PLAN = b'{"tpuctl_plan":'
"""The first bytes of a file from `tpuctl plan --output FILE`. Such a file would change the bundle it describes."""
PLAN_NAMES = ("", ".json", ".plan", ".tpuplan")
"""Suffixes of files that may be a saved plan, and are opened to check it."""
REPORT = b'<meta name="generator" content="tpuctl report">'
"""Near the start of a page that `tpuctl report` wrote: such a page is no new code of the job."""
_NOTHING = "nothing was sent"


@dataclass(frozen=True)
class SourceEntry:
    """
    One path to send: *mode* has its type, *size* is in bytes, *link* is the target of a symlink.

    *stamp* changes whenever the content may have changed (inode, times in nanoseconds). *allowed* means
    that a `!` pattern of the user includes it.
    """

    path: str
    mode: int
    size: int
    link: str
    stamp: tuple[int, int, int]
    allowed: bool = False


@dataclass(frozen=True)
class SourceFiles:
    """What is sent, sorted by path, what is excluded by the user's patterns or as a key, and what is refused."""

    entries: list[SourceEntry] = field(default_factory=list)
    excluded: list[ExcludedPath] = field(default_factory=list)
    refused: list[UsageError] = field(default_factory=list)


def sent_files(source: Path, limit: int = MAX_BYTES, written: Sequence[str] = ()) -> list[SourceEntry]:
    """
    Return what would be sent, sorted by path; *written* adds patterns for files that tpuctl itself uses.

    Raise UsageError for a folder that is missing or over *limit* bytes, and for all in it that is unreadable, a
    special file or a symlink that leads out of it.
    """
    return _walked(source, limit, written, with_excluded=False).entries


def source_files(source: Path, limit: int = MAX_BYTES) -> SourceFiles:
    """Return what would be sent and what is excluded. Raise UsageError as `sent_files` does."""
    return _walked(source, limit, (), with_excluded=True)


def _walked(source: Path, limit: int, written: Sequence[str], *, with_excluded: bool) -> SourceFiles:
    root = _folder(source)
    found = SourceFiles()
    _walk(root, root, "", first_patterns(written), found, with_excluded=with_excluded)
    total = sum(entry.size for entry in found.entries)
    if total > limit:
        found.refused.append(_too_large(source, found.entries, total, limit))
    elif found.refused:
        # Otherwise keys are found while the files are packed, without reading them twice.
        keys = list(_keys(root, found.entries))
        found.refused.extend([key_refusal(keys)] if keys else [])
    _refuse(source, found.refused)
    return SourceFiles(
        sorted(found.entries, key=lambda entry: entry.path), sorted(found.excluded, key=lambda one: one.path)
    )


@dataclass(frozen=True)
class KeyFound:
    """A file that holds a key, and of what kind the key is."""

    path: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path} ({self.kind})"


def key_refusal(found: Sequence[KeyFound]) -> UsageError:
    """Return the error for files with keys: every machine of the job could read them."""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return UsageError(
        f"the source folder holds what looks like keys: {', '.join(map(str, found[:3]))}{more}",
        changed=_NOTHING,
        hint="name the file in .tpuctlignore and store the key with `tpuctl secret set NAME`; if it is "
        f"not a key, allow it there with a line !{found[0].path}",
        code="TPU-142",
    )


def _refuse(source: Path, refused: Sequence[UsageError]) -> None:
    """Raise one error for everything in *refused*, if there is anything."""
    if len(refused) < 2:
        for error in refused:
            raise error
        return
    shown = [
        f"- {error.message}; {error.next_step}" for error in sorted(refused, key=lambda one: one.message)
    ]
    more = [f"- and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    lines = "\n".join([*shown[:SHOWN], *more])
    raise UsageError(
        f"the source folder {source} cannot be sent, for {len(refused)} reasons:\n{lines}",
        changed=_NOTHING,
        hint="correct what is listed, then run the command again",
    )


def _keys(root: Path, entries: Sequence[SourceEntry]) -> Iterator[KeyFound]:
    for entry in entries:
        if stat.S_ISREG(entry.mode) and entry.size <= SMALL and not entry.allowed:
            with contextlib.suppress(OSError):
                kinds = keys_in((root / entry.path).read_bytes())
                yield from (KeyFound(entry.path, kind) for kind in kinds[:1])


def megabytes(size: int) -> str:
    """Return *size* in MB (10^6 bytes) for messages."""
    return f"{size / 1_000_000:,.1f} MB"


def _folder(source: Path) -> Path:
    root = source.resolve()
    if root.is_dir():
        return root
    raise UsageError(
        f"the source folder {source} does not exist, or is not a folder",
        changed=_NOTHING,
        hint="set job.source in tpuctl.yaml to the folder with your code",
    )


def _walk(
    root: Path,
    folder: Path,
    prefix: str,
    patterns: Patterns,
    into: SourceFiles,
    *,
    with_excluded: bool = False,
) -> None:
    inner = patterns.entering(folder, prefix)
    try:
        found = list(os.scandir(folder))
    except OSError as error:
        into.refused.append(_unreadable(folder, error))
        return
    for item in found:
        path = prefix + item.name
        is_folder = item.is_dir(follow_symlinks=False)
        verdict = inner.judge(path, item.name, is_folder)
        if verdict.excluded:
            if with_excluded and verdict.reason is not PatternReason.OURS:
                into.excluded.append(_excluded(Path(item.path), path, verdict))
            continue
        if is_folder and (Path(item.path) / FETCHED).is_file():
            continue  # A model that `tpuctl fetch` downloaded is no code.
        if not is_folder and _is_output(Path(item.path)):
            continue
        try:
            entry = _entry(root, Path(item.path), path, item.stat(follow_symlinks=False))
        except UsageError as error:
            into.refused.append(error)
            continue
        into.entries.append(replace(entry, allowed=verdict.allowed))
        if is_folder:
            _walk(root, Path(item.path), path + "/", inner, into, with_excluded=with_excluded)


def _is_output(file: Path) -> bool:
    """Return whether *file* was written by `tpuctl plan` or `tpuctl report` with --output FILE."""
    if file.suffix not in (*PLAN_NAMES, ".html") or file.is_symlink() or not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            head = opened.read(256)
        return REPORT in head if file.suffix == ".html" else head.startswith(PLAN)
    except OSError:
        return False  # An unreadable file is reported by the sent_files itself.


def _excluded(file: Path, path: str, verdict: PatternVerdict) -> ExcludedPath:
    """Return an excluded path with its size; what is unreadable counts as 0 bytes."""
    why = (verdict.line, verdict.reason is PatternReason.KEY)
    if file.is_symlink() or not file.is_dir():
        return ExcludedPath(path, *why, 1, file.lstat().st_size)
    files = size = 0
    for top, _, names in os.walk(file):
        for name in names:
            if files >= COUNTED:
                return ExcludedPath(f"{path}/", *why, files, size, more=True)
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(top, name)).st_size  # noqa: PTH118 - one of very many
            files += 1
    return ExcludedPath(f"{path}/", *why, files, size)


def _entry(root: Path, file: Path, path: str, status: os.stat_result) -> SourceEntry:
    stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    if stat.S_ISLNK(status.st_mode):
        return SourceEntry(path, stat.S_IFLNK | 0o777, 0, _target(root, file, path), stamp)
    if stat.S_ISDIR(status.st_mode):
        return SourceEntry(path, stat.S_IFDIR | 0o755, 0, "", (0, 0, 0))
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(
            f"{path} in {root} is neither a file, a folder nor a link (a socket, a pipe or a device)",
            changed=_NOTHING,
            hint="remove it, or name it in .tpuctlignore",
        )
    if not os.access(file, os.R_OK):
        raise _unreadable(file, None)
    mode = 0o755 if status.st_mode & 0o100 else 0o644
    return SourceEntry(path, stat.S_IFREG | mode, status.st_size, "", stamp)


def _target(root: Path, file: Path, path: str) -> str:
    """Return a symlink's target relative to the link. Raise UsageError if it leads out of the source."""
    target = Path(os.path.realpath(file))
    if target != root and root not in target.parents:
        raise UsageError(
            f"{path} in {root} is a symlink to outside the folder, to {file.readlink()}",
            changed=_NOTHING,
            hint="copy what it points to into the folder, or name the link in .tpuctlignore",
        )
    return os.path.relpath(target, os.path.realpath(file.parent))


def _unreadable(file: Path, error: OSError | None) -> UsageError:
    return UsageError(
        f"{file} cannot be read: {error.strerror if error is not None else 'Permission denied'}",
        changed=_NOTHING,
        hint="make it readable, or name it in .tpuctlignore",
    )


def _too_large(source: Path, entries: list[SourceEntry], total: int, limit: int) -> UsageError:
    """Return the error that lists the three largest entries of the folder."""
    sizes: Counter[str] = Counter()
    for entry in entries:
        top, slash, _ = entry.path.partition("/")
        sizes[top + slash] += entry.size
    largest = ", ".join(f"{name} {megabytes(size)}" for name, size in sizes.most_common(3))
    return UsageError(
        f"the source folder {source} has {megabytes(total)}, more than {megabytes(limit)}. "
        f"Largest: {largest}",
        changed=_NOTHING,
        hint="name data and outputs in .tpuctlignore; job.data brings data (docs/data.md)",
    )
