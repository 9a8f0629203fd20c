"""
Pull an image from a registry, by the OCI distribution and image specifications 1.1.

All content is compared with its digest. A registry on loopback is contacted over plain HTTP, as docker does.
"""

import base64
import hashlib
import json
import platform
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DOCKER_HUB = "docker.io"
_REFERENCE = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._/:-]+[a-zA-Z0-9]+)*?)(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
BLOCK = 1 << 20
TIMEOUT = 60.0
"""Seconds without a byte after which a registry is given up."""


class ImageError(Exception):
    """An image cannot be pulled; the text is for users of docker."""


@dataclass(frozen=True)
class Reference:
    """An image's name: *host* and *repository* as docker normalises them, and a *tag* or a *digest*."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def familiar(self) -> str:
        """Return the name as docker shows it, without its default registry."""
        if self.host == DOCKER_HUB:
            return self.repository.removeprefix("library/")
        return f"{self.host}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.familiar}@{self.digest}" if self.digest else f"{self.familiar}:{self.tag}"


def parse(text: str) -> Reference:
    """Parse an image's name. Raise ImageError."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ImageError("invalid reference format")
    host, slash, path = found["name"].partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = DOCKER_HUB, found["name"]
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return Reference(host, path, found["tag"] or ("" if found["digest"] else "latest"), found["digest"] or "")


@dataclass(frozen=True)
class Pulled:
    """A manifest: its *digest*, the digest and bytes of the config, and the layers in order."""

    digest: str
    config_digest: str
    config: Mapping[str, Any]
    layers: tuple[Mapping[str, Any], ...]


class Registry:
    """The registry of one *reference*; *config* is docker's config.json."""

    def __init__(self, reference: Reference, config: Mapping[str, Any]) -> None:
        self._reference = reference
        host = "registry-1.docker.io" if reference.host == DOCKER_HUB else reference.host
        name = urlsplit(f"//{host}").hostname or ""
        near = name == "localhost" or name.startswith("127.")
        self._base = f"{'http' if near else 'https'}://{host}/v2/{reference.repository}"
        self._basic = _basic(config, reference.host)
        self._authorization = ""
        # Loopback is never contacted through a proxy.
        handlers = [urllib.request.ProxyHandler({})] if near else []
        self._opener = urllib.request.build_opener(*handlers)

    def manifest(self) -> Pulled:
        """Return the manifest for this machine's architecture. Raise ImageError."""
        asked = self._reference.digest or self._reference.tag
        kind, digest, body = self._manifest(asked)
        top = digest
        if kind in INDEXES or "manifests" in body:
            kind, _, body = self._manifest(_for_this_machine(body["manifests"]))
        if kind not in MANIFESTS:
            raise ImageError(f"unsupported manifest media type {kind}")
        descriptor = body["config"]
        config = json.loads(self._checked(f"/blobs/{descriptor['digest']}", descriptor["digest"]))
        made_for = (config.get("os", "linux"), config.get("architecture", ""))
        if made_for != ("linux", architecture()):
            raise ImageError(
                f"the image is for {'/'.join(made_for)}, and this machine is linux/{architecture()}"
            )
        return Pulled(top, descriptor["digest"], config, tuple(body["layers"]))

    def download(self, layer: Mapping[str, Any], target: Path) -> None:
        """Download a layer to a file. Raise ImageError if its digest differs."""
        digest = hashlib.sha256()
        with self._open(f"/blobs/{layer['digest']}", ()) as answer, target.open("wb") as file:
            while block := answer.read(BLOCK):
                digest.update(block)
                file.write(block)
        if f"sha256:{digest.hexdigest()}" != layer["digest"]:
            target.unlink()
            raise ImageError(f"filesystem layer verification failed for digest {layer['digest']}")

    def _manifest(self, name: str) -> tuple[str, str, dict[str, Any]]:
        with self._open(f"/manifests/{name}", (*INDEXES, *MANIFESTS)) as answer:
            data, kind = answer.read(), str(answer.headers.get_content_type())
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if name.startswith("sha256:") and name != digest:
            raise ImageError(f"manifest verification failed for digest {name}")
        return kind, digest, json.loads(data)

    def _checked(self, path: str, digest: str) -> bytes:
        with self._open(path, ()) as answer:
            data: bytes = answer.read()
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise ImageError(f"verification failed for digest {digest}")
        return data

    def _open(self, path: str, accepted: tuple[str, ...]) -> Any:
        """Send a request; after a refusal, once more with the authorization that the registry demands."""
        try:
            return self._send(path, accepted)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise ImageError(self._refusal(error)) from error
            self._authorization = self._answer_to(error.headers.get("WWW-Authenticate", ""))
        except OSError as error:
            raise ImageError(f'Get "{self._base}{path}": {getattr(error, "reason", error)}') from error
        try:
            return self._send(path, accepted)
        except urllib.error.HTTPError as error:
            raise ImageError(self._refusal(error)) from error

    def _send(self, path: str, accepted: tuple[str, ...]) -> Any:
        request = urllib.request.Request(self._base + path)  # noqa: S310 (http or https, by our own base)
        for kind in accepted:
            # One header with all types, since urllib keeps one value per name.
            request.headers["Accept"] = f"{request.headers.get('Accept', '')}, {kind}".lstrip(", ")
        if self._authorization:
            # Unredirected: a redirect leads to a signed URL of another server, which must not get it.
            request.add_unredirected_header("Authorization", self._authorization)
        return self._opener.open(request, timeout=TIMEOUT)

    def _answer_to(self, challenge: str) -> str:
        """Return the authorization header for a registry's challenge. Raise ImageError."""
        if not challenge.lower().startswith("bearer "):
            return self._basic
        values = dict(_CHALLENGE.findall(challenge))
        query = {key: values[key] for key in ("service", "scope") if key in values}
        request = urllib.request.Request(f"{values['realm']}?{urlencode(query)}")  # noqa: S310 (the registry's word)
        if self._basic:
            request.add_unredirected_header("Authorization", self._basic)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                body = json.load(answer)
        except OSError as error:
            raise ImageError(f"failed to authorize: {error}") from error
        return f"Bearer {body.get('token') or body['access_token']}"

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        if error.code in (401, 403):
            return f"pull access denied for {self._reference.familiar}: the registry answers {error.code}"
        if error.code == 404:
            return f"manifest for {self._reference} not found: manifest unknown"
        return f"the registry answers {error.code} {error.reason}"


def architecture() -> str:
    """Return this machine's architecture under its name in images."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def _for_this_machine(manifests: list[dict[str, Any]]) -> str:
    for one in manifests:
        asked = one.get("platform", {})
        if (asked.get("os"), asked.get("architecture")) == ("linux", architecture()):
            return str(one["digest"])
    raise ImageError(f"no matching manifest for linux/{architecture()} in the manifest list entries")


def _basic(config: Mapping[str, Any], host: str) -> str:
    """Return the basic authorization for a registry from config.json, "" if there is none."""
    auths = config.get("auths", {})
    entry = auths.get(host) or auths.get(f"https://{host}") or {}
    text = entry.get("auth", "")
    if not text and entry.get("username"):
        text = base64.b64encode(f"{entry['username']}:{entry['password']}".encode()).decode()
    return f"Basic {text}" if text else ""
