"""Provide uv, which makes Python environments: one pinned release, verified by its sha256."""

from __future__ import annotations

import gzip
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Callable, Dict, Mapping

from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.layout import Layout
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.machine_errors import AgentError, DamagedError
from orchestrator.contract.uv_pin import PROGRAMS, VERSION, object_name

GIVEN = "TPUCTL_LOCAL_UV"
"""The variable in which a local cloud passes the path of this computer's uv."""
LINKED = (
    ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
    ("UV_INDEX", "PIP_EXTRA_INDEX_URL"),
    ("UV_FIND_LINKS", "PIP_FIND_LINKS"),
    ("UV_INSECURE_HOST", "PIP_TRUSTED_HOST"),
    ("SSL_CERT_FILE", "PIP_CERT"),
)
"""uv's names for pip's variables, which uv itself does not read."""


def program(layout: Layout, environ: Mapping[str, str], bucket: Callable[[], JobBucket]) -> Path:
    """Return the path of uv; download it from the bucket on first use. Raise AgentError with a remedy."""
    given = environ.get(GIVEN)
    if given and Path(given).is_file():
        return Path(given)
    digest = PROGRAMS.get(platform.machine())
    if digest is None:
        raise AgentError(f"uv {VERSION} is not pinned for {platform.machine()} processors")
    here = layout.programs / f"uv-{VERSION}"
    if not here.exists():
        _fetch(here, digest, bucket())
    return here


def for_uv(environ: Mapping[str, str], layout: Layout) -> Dict[str, str]:
    """
    Return uv's environment: packages come from the indexes, and by the rules, that pip would use.

    By default uv takes a package from the first index that has it; pip considers all of them.
    """
    values = dict(environ)
    for ours, pips in LINKED:
        if environ.get(pips) and not environ.get(ours):
            separator = "," if ours == "UV_FIND_LINKS" else " "
            values[ours] = separator.join(environ[pips].split())
    values.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    values.setdefault("UV_CACHE_DIR", str(layout.root / "uv-cache"))
    values.setdefault("UV_PYTHON_INSTALL_DIR", str(layout.root / "pythons"))
    values.setdefault("UV_NO_PROGRESS", "1")
    # uv started inside an environment would install into that one.
    for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "CONDA_PREFIX"):
        values.pop(name, None)
    return dict(values, UV_NO_CONFIG="1")


def _fetch(here: Path, digest: str, bucket: JobBucket) -> None:
    name = object_name(digest)
    held = bucket.stat(name, bucket.retry_timeout)
    if held is None:
        raise AgentError(
            f"uv {VERSION} is not in gs://{bucket.name}/{name}: the computer that ran `tpuctl up` could not "
            f"get it. There, run: pip install uv=={VERSION}; then: tpuctl up"
        )
    here.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".uv-", dir=str(here.parent)) as folder:
        packed, fresh = Path(folder) / "uv.gz", Path(folder) / "uv"
        bucket.download(name, packed, int(held["size"]))
        try:
            with gzip.open(str(packed), "rb") as source, fresh.open("wb") as target:
                shutil.copyfileobj(source, target)
        except (OSError, EOFError) as error:
            raise DamagedError(f"gs://{bucket.name}/{name} cannot be unpacked: {error}") from error
        if sha256_of(fresh) != digest:
            raise DamagedError(f"gs://{bucket.name}/{name} has another sha256 than its name")
        # Verified before it becomes executable.
        fresh.chmod(0o755)
        fresh.replace(here)  # A rename also replaces the file if another start has created it meanwhile.
