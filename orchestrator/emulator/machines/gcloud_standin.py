"""
Emulate `gcloud storage` on computers without gcloud: cp, rsync, rm, ls and cat.

It uses google-cloud-storage and behaves like gcloud 528 for the flags that machines use; all test cases run
against both. Anything else exits with status 2.
"""

import argparse
import base64
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
from google.api_core.exceptions import GoogleAPICallError, PreconditionFailed
from google.cloud import storage

Arguments = argparse.Namespace
SCHEME = "gs://"


class GcloudError(Exception):
    """A command failed as in gcloud; the text follows `ERROR: (gcloud.storage.VERB) `."""


@dataclass(frozen=True)
class ListedItem:
    """
    One file or object: *name* is relative to the argument, *size* in bytes, *crc32c* in base64.

    A file's *crc32c* is "" until it is needed.
    """

    location: "Location"
    key: str
    name: str
    size: int
    crc32c: str = ""

    @property
    def url(self) -> str:
        return self.location.url(self.key)


class Folder:
    def __init__(self, path: str) -> None:
        self.path = path

    def url(self, key: str) -> str:
        return f"file://{key}"

    def one(self) -> ListedItem | None:
        file = Path(self.path)
        return ListedItem(self, self.path, file.name, file.stat().st_size) if file.is_file() else None

    def below(self) -> list[ListedItem]:
        root = Path(self.path)
        files = sorted(Path(folder) / name for folder, _, names in os.walk(root) for name in names)
        return [
            ListedItem(self, str(file), file.relative_to(root).as_posix(), file.stat().st_size)
            for file in files
            if file.is_file()
        ]

    def is_container(self) -> bool:
        return Path(self.path).is_dir()

    def title(self) -> str:
        return Path(self.path).resolve().name

    def remove(self, key: str) -> None:
        Path(key).unlink()


class Prefix:
    """A bucket and a prefix of object names, which may contain `*`, `?` and `**`."""

    def __init__(self, client: Any, address: str) -> None:
        name, _, self.path = address[len(SCHEME) :].partition("/")
        if not name:
            raise GcloudError(f"Invalid Cloud Storage URL: {address}")
        self.bucket = client.bucket(name)

    def url(self, key: str) -> str:
        return f"{SCHEME}{self.bucket.name}/{key}"

    def one(self) -> ListedItem | None:
        blob = self.bucket.get_blob(self.path) if self.path and not self.is_pattern() else None
        return self._item(blob, self.path.rpartition("/")[2]) if blob is not None else None

    def below(self) -> list[ListedItem]:
        """Return all objects under the prefix, all of the bucket if it is ""."""
        prefix = f"{self.path.rstrip('/')}/" if self.path else ""
        return [
            self._item(blob, blob.name[len(prefix) :])
            for blob in self.bucket.list_blobs(prefix=prefix or None)
        ]

    def matching(self) -> list[ListedItem]:
        pattern = _regex(self.path)
        start = re.split(r"[*?]", self.path)[0]
        blobs = (
            blob for blob in self.bucket.list_blobs(prefix=start or None) if pattern.fullmatch(blob.name)
        )
        return [self._item(blob, blob.name.rpartition("/")[2]) for blob in blobs]

    def children(self) -> list[str]:
        """Return what `ls` shows for a prefix: objects and sub-prefixes, one level deep."""
        prefix = f"{self.path.rstrip('/')}/" if self.path else ""
        listing = self.bucket.list_blobs(prefix=prefix or None, delimiter="/")
        names = [blob.name for blob in listing if blob.name != prefix]
        return sorted(self.url(name) for name in [*names, *listing.prefixes])

    def is_pattern(self) -> bool:
        return "*" in self.path or "?" in self.path

    def is_container(self) -> bool:
        """Return whether it is a bucket, ends in `/`, or has objects under it."""
        if not self.path or self.path.endswith("/"):
            return True
        return any(True for _ in self.bucket.list_blobs(prefix=f"{self.path}/", max_results=1))

    def title(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2] or str(self.bucket.name)

    def remove(self, key: str) -> None:
        self.bucket.blob(key).delete()

    def _item(self, blob: Any, name: str) -> ListedItem:
        return ListedItem(self, blob.name, name, blob.size, blob.crc32c)


Location = Folder | Prefix
"""Source or target of a copy: files under keys whose parts are joined by `/`."""


def _regex(pattern: str) -> "re.Pattern[str]":
    """Translate gcloud's wildcards: `**` crosses slashes, `*` and `?` do not."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts))


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, 1 for a failure, 2 for wrong usage (by argparse)."""
    arguments = _parser().parse_args(words)
    try:
        return _run(arguments)
    except (GcloudError, OSError) as error:
        return _fail(f"(gcloud.storage.{arguments.verb}) {error}")


def _run(arguments: Arguments) -> int:
    """Run the verb; Google's errors are printed as gcloud prints them."""
    project = os.environ.get("CLOUDSDK_CORE_PROJECT") or os.environ.get("GOOGLE_CLOUD_PROJECT") or "none"
    verb: Callable[[Any, Arguments], int] = arguments.run
    try:
        return verb(storage.Client(project=project), arguments)
    except GoogleAPICallError as error:
        return _fail(f"HTTPError {error.code}: {error.message}")


def copy(client: Any, arguments: Arguments) -> int:
    """Copy files and objects to one place, as `cp [-r] SOURCE... TARGET`."""
    *sources, target = arguments.urls
    if not sources:
        raise GcloudError("at least one source and a destination are needed")
    status = 0
    for source in sources:
        location, goal = _location(client, source), _location(client, target)
        for item, name in _named(location, source, goal, arguments, several=len(sources) > 1):
            status |= _transfer(item, goal, name, arguments)
    return status


def rsync(client: Any, arguments: Arguments) -> int:
    """Make the target folder or prefix equal to the source."""
    source, target = (_location(client, url) for url in arguments.urls)
    if not source.is_container():
        raise GcloudError(f"Did not find existing container at: {arguments.urls[0]}")
    deep = arguments.recursive
    wanted = {item.name: item for item in source.below() if deep or "/" not in item.name}
    present = {item.name: item for item in target.below() if deep or "/" not in item.name}
    status = 0
    for name, item in wanted.items():
        held = present.get(name)
        if held is None or held.size != item.size or _crc32c(held) != _crc32c(item):
            status |= _transfer(item, target, _joined(target.path, name), arguments)
    if arguments.delete_unmatched_destination_objects:
        for name in sorted(present.keys() - wanted.keys()):
            _say(f"Removing {present[name].url}...")
            target.remove(present[name].key)
    return status


def remove(client: Any, arguments: Arguments) -> int:
    """Delete objects; with -r everything under a prefix."""
    for url in arguments.urls:
        for item in _objects(client, url, recursive=arguments.recursive):
            _say(f"Removing {item.url}...")
            item.location.remove(item.key)
    return 0


def show(client: Any, arguments: Arguments) -> int:
    for item in [item for url in arguments.urls for item in _objects(client, url)]:
        if isinstance(item.location, Prefix):
            item.location.bucket.blob(item.key).download_to_file(sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return 0


def listing(client: Any, arguments: Arguments) -> int:
    """Print the URLs of buckets, or of what a prefix or pattern matches."""
    if not arguments.urls:
        print("\n".join(f"{SCHEME}{bucket.name}/" for bucket in client.list_buckets()))  # noqa: T201
    for url in arguments.urls:
        location = _prefix(client, url)
        one = location.one()
        if one is not None:
            lines = [one.url]
        elif location.is_pattern():
            lines = [item.url for item in location.matching()]
        else:
            lines = location.children()
        if not lines and location.path:
            raise GcloudError("One or more URLs matched no objects.")
        print("\n".join(lines))  # noqa: T201
    return 0


def _named(
    location: Location, source: str, goal: Location, arguments: Arguments, *, several: bool
) -> list[tuple[ListedItem, str]]:
    """
    Return each item of a source with its key at the goal. Raise GcloudError.

    A file becomes the goal, or goes into it if that is a container; a tree becomes the goal, or a child of it
    if that exists. Downloads of trees need an existing folder.
    """
    one = location.one()
    pattern = isinstance(location, Prefix) and location.is_pattern()
    if one is not None or pattern:
        items = location.matching() if isinstance(location, Prefix) and pattern else [one] if one else []
        inside = several or pattern or goal.path.endswith("/") or not goal.path or goal.is_container()
        if items:
            return [(item, _joined(goal.path, item.name) if inside else goal.path) for item in items]
    below = location.below() if arguments.recursive else []
    if not below:
        raise GcloudError(f"The following URLs matched no objects or files:\n{source}")
    if isinstance(goal, Folder) and not goal.is_container():
        raise GcloudError(f"Destination URL must name an existing directory. Provided: {goal.path}.")
    top = _joined(goal.path, location.title()) if several or goal.is_container() else goal.path
    return [(item, _joined(top, item.name)) for item in below]


def _transfer(item: ListedItem, goal: Location, key: str, arguments: Arguments) -> int:
    """Copy one item; return 1 after a failed precondition, with which gcloud continues."""
    _say(f"Copying {item.url} to {goal.url(key)}")
    match = 0 if getattr(arguments, "no_clobber", False) else getattr(arguments, "if_generation_match", None)
    try:
        if isinstance(goal, Prefix):
            _to_bucket(item, goal, key, match)
        else:
            _to_file(item, Path(key), getattr(arguments, "no_clobber", False), match)
    except PreconditionFailed as error:
        if getattr(arguments, "no_clobber", False):
            _say(f"Skipping existing destination item (no-clobber): {goal.url(key)}")
            return 0
        return _fail(f"HTTPError 412: {error.message}")
    return 0


def _to_bucket(item: ListedItem, goal: Prefix, key: str, match: int | None) -> None:
    blob = goal.bucket.blob(key)
    if isinstance(item.location, Prefix):
        source = item.location.bucket.blob(item.key)
        token, _, _ = blob.rewrite(source, if_generation_match=match)
        while token is not None:
            token, _, _ = blob.rewrite(source, token=token, if_generation_match=match)
    else:
        blob.upload_from_filename(item.key, if_generation_match=match)


def _to_file(item: ListedItem, path: Path, no_clobber: bool, match: int | None) -> None:
    """Write beside the target and rename, so that an interrupted download leaves no file that looks whole."""
    if no_clobber and path.exists():
        _say(f"Skipping existing destination item (no-clobber): file://{path}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}_.gstmp")
    if isinstance(item.location, Prefix):
        blob = item.location.bucket.blob(item.key)
        blob.download_to_filename(str(partial), if_generation_match=None if no_clobber else match)
    else:
        partial.write_bytes(Path(item.key).read_bytes())
    partial.replace(path)


def _objects(client: Any, url: str, *, recursive: bool = False) -> list[ListedItem]:
    """Return the objects that a URL names. Raise GcloudError if there are none."""
    location = _prefix(client, url)
    one = location.one()
    items = [one] if one is not None else location.matching() if location.is_pattern() else []
    if not items and recursive:
        items = location.below()
    if not items:
        raise GcloudError(f"The following URLs matched no objects or files:\n{url}")
    return items


def _crc32c(item: ListedItem) -> str:
    """Return the item's checksum; a file is read for it."""
    if item.crc32c:
        return item.crc32c
    checksum = google_crc32c.Checksum()
    with Path(item.key).open("rb") as file:
        while data := file.read(1 << 20):
            checksum.update(data)
    return base64.b64encode(checksum.digest()).decode()


def _location(client: Any, url: str) -> Location:
    return Prefix(client, url) if url.startswith(SCHEME) else Folder(url)


def _prefix(client: Any, url: str) -> Prefix:
    if not url.startswith(SCHEME):
        raise GcloudError(f"This command only works with Cloud Storage URLs. Invalid URL: {url}")
    return Prefix(client, url)


def _joined(top: str, name: str) -> str:
    return f"{top.rstrip('/') if top != '/' else ''}/{name}" if top else name


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def _fail(text: str) -> int:
    _say(f"ERROR: {text}")
    return 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-q", "--quiet", action="store_true")
    common.add_argument("-r", "-R", "--recursive", action="store_true")
    parser = argparse.ArgumentParser(
        prog="gcloud",
        description="A stand-in for gcloud storage; install the Google Cloud CLI for anything else.",
    )
    parser.add_argument("-q", "--quiet", action="store_true")
    group = parser.add_subparsers(required=True, metavar="storage").add_parser("storage")
    verbs = group.add_subparsers(dest="verb", required=True)
    runs = {"cp": copy, "rsync": rsync, "rm": remove, "cat": show, "ls": listing}
    for verb, run in runs.items():
        command = verbs.add_parser(verb, parents=[common])
        count: int | str = {"rsync": 2, "ls": "*"}.get(verb, "+")  # type: ignore[assignment]
        command.add_argument("urls", nargs=count)
        command.set_defaults(run=run)
        if verb == "cp":
            command.add_argument("--if-generation-match", type=int)
            command.add_argument("-n", "--no-clobber", action="store_true")
        if verb == "rsync":
            command.add_argument("--delete-unmatched-destination-objects", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
