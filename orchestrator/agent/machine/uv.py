"""uv, the program that makes Python environments on a machine: one pinned release, checked by its sha256."""

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
from orchestrator.contract.machine_errors import AgentError, TornError
from orchestrator.contract.uv_pin import PROGRAMS, VERSION, object_name

GIVEN = "TPUCTL_LOCAL_UV"
"""The variable with which a local cloud names the program of the computer."""
LINKED = (
    ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
    ("UV_INDEX", "PIP_EXTRA_INDEX_URL"),
    ("UV_FIND_LINKS", "PIP_FIND_LINKS"),
    ("UV_INSECURE_HOST", "PIP_TRUSTED_HOST"),
    ("SSL_CERT_FILE", "PIP_CERT"),
)
"""What pip's variables are called in uv, which does not read them."""


def program(layout: Layout, environ: Mapping[str, str], bucket: Callable[[], JobBucket]) -> Path:
    """
    Return the program on this machine, which comes from the bucket when it is wanted for the first time.

    Raises AgentError that says how to help.
    """
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
    Return the environment of uv: packages come from where pip would take them, by pip's rules.

    uv asks one index after the other unless told otherwise; lists that were written for pip mean all.
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
    # A uv that is started inside an environment would install into that one.
    for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "CONDA_PREFIX"):
        values.pop(name, None)
    return dict(values, UV_NO_CONFIG="1")


def _fetch(here: Path, digest: str, bucket: JobBucket) -> None:
    name = object_name(digest)
    held = bucket.stat(name, bucket.patience)
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
            raise TornError(f"gs://{bucket.name}/{name} cannot be unpacked: {error}") from error
        if sha256_of(fresh) != digest:
            raise TornError(f"gs://{bucket.name}/{name} has another sha256 than its name")
        # Checked before it may run.
        fresh.chmod(0o755)
        fresh.replace(here)  # One rename, also over a file that another start has made meanwhile.
