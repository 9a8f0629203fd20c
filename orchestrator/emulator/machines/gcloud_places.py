"""The two kinds of places that `gcloud storage` copies between: folders and buckets."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SCHEME = "gs://"


class RefusedError(Exception):
    """A command failed as gcloud fails: the text follows `ERROR: (gcloud.storage.VERB) `."""


@dataclass(frozen=True)
class Item:
    """
    One file or object: *name* is relative to what was asked for, *size* in bytes, *crc32c* in base64.

    *crc32c* is empty for a file until it is needed.
    """

    place: "Place"
    key: str
    name: str
    size: int
    crc32c: str = ""

    @property
    def url(self) -> str:
        """Return the item's address as gcloud prints it."""
        return self.place.url(self.key)


class Place(Protocol):
    """Hold files under keys that are parts joined by `/`."""

    path: str

    def url(self, key: str) -> str:
        """Return the address of *key*."""

    def one(self) -> Item | None:
        """Return the file or object that the path names exactly."""

    def below(self) -> list[Item]:
        """Return everything in the folder or under the prefix that the path names."""

    def is_container(self) -> bool:
        """Tell whether a copy to this place goes into it rather than becoming it."""

    def title(self) -> str:
        """Return the last part of the path."""

    def remove(self, key: str) -> None:
        """Delete a file or object."""


class Folder:
    """A path of the file system."""

    def __init__(self, path: str) -> None:
        self.path = path

    def url(self, key: str) -> str:
        """Return a file:// address, relative as given."""
        return f"file://{key}"

    def one(self) -> Item | None:
        """Return the file, if the path is one."""
        file = Path(self.path)
        return Item(self, self.path, file.name, file.stat().st_size) if file.is_file() else None

    def below(self) -> list[Item]:
        root = Path(self.path)
        files = sorted(Path(folder) / name for folder, _, names in os.walk(root) for name in names)
        return [
            Item(self, str(file), file.relative_to(root).as_posix(), file.stat().st_size)
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
    """A bucket and the beginning of object names; the path may hold `*`, `?` and `**`."""

    def __init__(self, client: Any, address: str) -> None:
        name, _, self.path = address[len(SCHEME) :].partition("/")
        if not name:
            raise RefusedError(f"Invalid Cloud Storage URL: {address}")
        self.bucket = client.bucket(name)

    def url(self, key: str) -> str:
        """Return the gs:// address."""
        return f"{SCHEME}{self.bucket.name}/{key}"

    def one(self) -> Item | None:
        blob = self.bucket.get_blob(self.path) if self.path and not self.is_pattern() else None
        return self._item(blob, self.path.rpartition("/")[2]) if blob is not None else None

    def below(self) -> list[Item]:
        """Return all objects under the prefix, the bucket's own when there is none."""
        prefix = f"{self.path.rstrip('/')}/" if self.path else ""
        return [
            self._item(blob, blob.name[len(prefix) :])
            for blob in self.bucket.list_blobs(prefix=prefix or None)
        ]

    def matching(self) -> list[Item]:
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
        """Tell whether it is a bucket, ends in `/`, or has objects under it."""
        if not self.path or self.path.endswith("/"):
            return True
        return any(True for _ in self.bucket.list_blobs(prefix=f"{self.path}/", max_results=1))

    def title(self) -> str:
        """Return the last part of the prefix, or the bucket's name."""
        return self.path.rstrip("/").rpartition("/")[2] or str(self.bucket.name)

    def remove(self, key: str) -> None:
        self.bucket.blob(key).delete()

    def _item(self, blob: Any, name: str) -> Item:
        return Item(self, blob.name, name, blob.size, blob.crc32c)


def _regex(pattern: str) -> "re.Pattern[str]":
    """Translate gcloud's wildcards: `**` crosses slashes, `*` and `?` do not."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts))
