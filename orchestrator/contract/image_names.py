"""Parse names of container images as docker does."""

import re

IMAGE = re.compile(
    r"(?:(?:[a-zA-Z0-9-]+\.)*[a-zA-Z0-9-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)
"""Grammar of a reference (github.com/distribution/reference), with sha256 as the only digest."""


def host_of(image: str) -> str:
    """Return the host of an image's registry, empty for Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else ""


def is_googles(image: str) -> bool:
    """Return whether the image is in Artifact Registry or gcr.io, where the machine's own account can log in."""
    host = host_of(image)
    return host.endswith(("-docker.pkg.dev", ".gcr.io")) or host == "gcr.io"


def repository_of(image: str) -> str:
    """Return the name of an image without tag and digest, as docker shows it."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    for prefix in ("docker.io/", "library/"):
        # No removeprefix: machines have Python 3.8.
        name = name[len(prefix) :] if name.startswith(prefix) else name  # noqa: FURB188
    return name
