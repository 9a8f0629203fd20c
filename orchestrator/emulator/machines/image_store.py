"""Store the images on a local machine: unpacked, by id, with their names."""

import gzip
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from orchestrator.emulator.machines import namespaces
from orchestrator.emulator.machines.registry_client import ImageError, Reference, Registry, parse

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
"""Marks for what a layer removes (OCI image specification 1.1, layer.md)."""


@dataclass(frozen=True)
class Image:
    """
    An image: the folders of its file system, the lowest last, and its runtime configuration.

    *digests* are its names in registries, REPOSITORY@sha256:HEX.
    """

    id: str
    lowers: tuple[str, ...]
    config: Mapping[str, Any]
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()

    def as_docker_shows_it(self) -> dict[str, Any]:
        """Return the output of `docker image inspect`, as far as the stand-in knows it."""
        return {
            "Id": self.id, "RepoTags": list(self.tags), "RepoDigests": list(self.digests),
            "Architecture": self.config.get("architecture", ""), "Os": self.config.get("os", "linux"),
            "Config": self.config.get("config", {}),
        }  # fmt: skip


class ImageStore:
    """The images below *root*; one process changes it at a time (docker_standin holds the lock)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._images, self._layers = root / "images", root / "layers"
        for folder in (self._images, self._layers):
            folder.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Image]:
        found = [json.loads(path.read_text()) for path in sorted(self._images.glob("*.json"))]
        return [
            Image(
                one["id"],
                tuple(one["lowers"]),
                one["config"],
                tuple(one["tags"]),
                tuple(one["digests"]),
            )
            for one in found
        ]

    def find(self, text: str) -> Image | None:
        """Return an image by name, digest or id; None if there is none."""
        for image in self.all():
            if text in (image.id, image.id.removeprefix("sha256:")):
                return image
        try:
            name = str(parse(text))
        except ImageError:
            return None
        return next((one for one in self.all() if name in (*one.tags, *one.digests)), None)

    def pull(self, reference: Reference, config: Mapping[str, Any]) -> tuple[Image, bool]:
        """Pull an image; return it and whether it is new. Raise ImageError."""
        registry = Registry(reference, config)
        pulled = registry.manifest()
        known = self.find(pulled.config_digest)
        digest = f"{reference.familiar}@{pulled.digest}"
        if known is None:
            with self._new_folder() as folder:
                for number, layer in enumerate(pulled.layers):
                    archive = folder.with_name(f"{folder.name}.{number}")
                    registry.download(layer, archive)
                    unpack(archive, folder)
                    archive.unlink()
                target = self._layers / pulled.config_digest.removeprefix("sha256:")
                # Left by a pull that was killed before it wrote the image's record.
                namespaces.delete(target)
                folder.rename(target)
            image = Image(pulled.config_digest, (str(target),), pulled.config)
        else:
            image = known
        tags = (str(reference),) if reference.tag else ()
        return self._named(image, tags, (digest,)), known is None

    def commit(self, image: Image, diff: Path, name: str) -> Image:
        """Make an image of *image* and a container's changes in *diff*, a folder that is moved here."""
        made = os.urandom(32).hex()
        target = self._layers / made
        diff.rename(target)
        layered = Image(f"sha256:{made}", (str(target), *image.lowers), image.config)
        return self._named(layered, (str(parse(name)),), ())

    def remove(self, image: Image) -> None:
        """Delete an image and the layers that no other one needs."""
        # The record first: after a kill, layers without a record only take up space.
        self._file(image).unlink(missing_ok=True)
        needed = {folder for one in self.all() for folder in one.lowers}
        for folder in set(image.lowers) - needed:
            namespaces.delete(Path(folder))

    def _named(self, image: Image, tags: tuple[str, ...], digests: tuple[str, ...]) -> Image:
        """Store an image with more names; a tag moves from the image that had it."""
        for other in self.all():
            if other.id != image.id and set(other.tags) & set(tags):
                others = tuple(tag for tag in other.tags if tag not in tags)
                self._write(Image(other.id, other.lowers, other.config, others, other.digests))
        made = Image(
            image.id,
            image.lowers,
            image.config,
            tuple(dict.fromkeys((*image.tags, *tags))),
            tuple(dict.fromkeys((*image.digests, *digests))),
        )
        self._write(made)
        return made

    def _write(self, image: Image) -> None:
        new = self._file(image).with_suffix(".new")
        new.write_text(json.dumps(asdict(image)))
        # A rename, so that a kill leaves the old record or the new one.
        new.replace(self._file(image))

    def _file(self, image: Image) -> Path:
        return self._images / f"{image.id.removeprefix('sha256:')}.json"

    @contextmanager
    def _new_folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._root, prefix="pull-") as name:
            folder = Path(name) / "layer"
            folder.mkdir()
            yield folder


def unpack(archive: Path, folder: Path) -> None:
    """
    Apply one layer to *folder*, with its whiteouts. Raise ImageError.

    This runs in a child process whose root is *folder*, so that no link of the image leads out of it.
    """
    with archive.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == ZSTD:
            with subprocess.Popen(["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE) as program:
                failure = _unpacked(folder, program.stdout)
        else:
            stream = gzip.GzipFile(fileobj=file) if magic[:2] == GZIP else file
            failure = _unpacked(folder, stream)
    if failure:
        raise ImageError(f"failed to register layer: {failure}")


def _unpacked(folder: Path, stream: Any) -> str:
    return namespaces.inside(folder, lambda: _apply(stream))


def _apply(stream: IO[bytes]) -> None:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.errorlevel = 1  # a user without root cannot set owners, which is no failure
        for member in archive:
            path = PurePosixPath(os.path.normpath(f"/{member.name}"))
            if path.name == OPAQUE:
                for one in os.listdir(path.parent):  # noqa: PTH208 - names only
                    _remove(path.parent / one)
            elif path.name.startswith(WHITEOUT):
                _remove(path.with_name(path.name.removeprefix(WHITEOUT)))
            elif not (member.ischr() or member.isblk()):  # devices come from the machine's /dev
                if not (member.isdir() and os.path.isdir(path)) and path.name:  # noqa: PTH112 - no import in here
                    _remove(path)
                member.name = str(path)
                archive.extract(member, "/", numeric_owner=True, **_ALL)


_ALL: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def _remove(path: PurePosixPath) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
