"""
Make sure that no process on a local machine can reach the real Google Cloud.

Google's clients fall back to the real service if an emulator's variable is missing. So nothing is started on
a local machine while such a variable is missing or points elsewhere. On real machines this module does
nothing.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Dict, List, Mapping, Tuple
from urllib.parse import urlsplit

from orchestrator.contract.machine_errors import UnsafeError

MARKS = ("TPUCTL_LOCAL_CLOUD", "TPUCTL_MACHINE")
"""Variables that mark a local machine; the local cloud sets them in two ways, and a job can set neither."""

STORAGE = ("TPUCTL_LOCAL_CLOUD", "STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL")
METADATA = ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT")
PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")
GCLOUD = (
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU",
)
TPU = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "TPUCTL_LOCAL_CLOUD")
GOOGLE_TPU = "https://tpu.googleapis.com"
SECRETS = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "TPUCTL_LOCAL_CLOUD")
GOOGLE_SECRETS = "https://secretmanager.googleapis.com"
ADDRESSES = (*STORAGE, *METADATA, *PROXIES, "TPUCTL_SETUP_PROXY", *GCLOUD)
"""Variables that must point to this computer."""

VALUES = {"NO_GCE_CHECK": "true", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
FILES = ("CURL_CA_BUNDLE",)
BYPASSES = ("no_proxy", "NO_PROXY")
REQUIRED = (*ADDRESSES, *VALUES, *FILES, *BYPASSES)
NETWORK = "REHEARSAL_NETWORK"
NOWHERE = "http://127.0.0.1:9"
_GOOGLE = ("storage.googleapis.com", "www.googleapis.com")


def is_local_machine(environ: Mapping[str, str]) -> bool:
    """Return whether the machine belongs to a local cloud; one of the marks is enough."""
    return any(mark in environ for mark in MARKS)


def wrong_settings(environ: Mapping[str, str]) -> List[str]:
    """Return one message for each wrong variable; none on a real machine."""
    if not is_local_machine(environ):
        return []
    missing = [name for name in REQUIRED if not environ.get(name)]
    here = [(name, environ[name]) for name in REQUIRED if environ.get(name)]
    wrong = [f"{name} is {value!r}{text}" for name, value in here for text in [_fault(name, value)] if text]
    if environ.get(NETWORK, "closed") not in ("open", "closed"):
        wrong.append(f"{NETWORK} is {environ[NETWORK]!r}, expected open or closed")
    return [f"{name} is missing" for name in missing] + wrong


def check(environ: Mapping[str, str]) -> None:
    """Raise UnsafeError naming every variable with which a child could reach the real service."""
    found = wrong_settings(environ)
    if found:
        raise UnsafeError(
            "nothing was started, because it could reach the real service. This machine belongs to a "
            f"rehearsal, but {'; '.join(found)}. Take that out of job.env, then run: tpuctl up"
        )


def trusted(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment for the agent's own calls, which stay local whatever job.env contains."""
    if not is_local_machine(environ):
        return dict(environ)
    storage, metadata = _first_here(environ, STORAGE), _first_here(environ, METADATA)
    return dict(environ, STORAGE_EMULATOR_HOST=storage, GCE_METADATA_HOST=metadata.rpartition("/")[2])


def tpu_endpoint(environ: Mapping[str, str]) -> str:
    """Return the address of the TPU API: Google's, or on a local machine one on this computer only."""
    return _first_here(environ, TPU).rstrip("/") if is_local_machine(environ) else GOOGLE_TPU


def secret_endpoint(environ: Mapping[str, str]) -> str:
    """Return the address of Secret Manager: Google's, or on a local machine one on this computer only."""
    return _first_here(environ, SECRETS).rstrip("/") if is_local_machine(environ) else GOOGLE_SECRETS


def for_setup(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of an installation, which may reach any host but Google's APIs."""
    if not is_local_machine(environ):
        return dict(environ)
    return dict(environ, **dict.fromkeys(PROXIES, environ.get("TPUCTL_SETUP_PROXY", "")))


def for_job(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of the job, which reaches other hosts only if its settings allow that."""
    return for_setup(environ) if environ.get(NETWORK) == "open" else dict(environ)


def _fault(name: str, value: str) -> str:
    """Return what is wrong with a value, "" if nothing."""
    if name in ADDRESSES and not _is_here(value):
        return ", which is not on this computer"
    if name in VALUES and value.lower() != VALUES[name]:
        return f", expected {VALUES[name]}"
    if name in FILES and not Path(value).is_file():
        return ", and there is no such file"
    if name in BYPASSES and any(_covers(word) for word in value.replace(",", " ").split()):
        return ", which leads past the proxy to Google"
    return ""


def _is_here(value: str) -> bool:
    try:
        host = urlsplit(value if "://" in value else f"//{value}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(word: str) -> bool:
    """Return whether an entry of no_proxy covers one of Google's hosts."""
    name = word.lower().partition(":")[0].lstrip("*").lstrip(".")
    if not name:
        return word == "*"
    return any(host == name or host.endswith(f".{name}") for host in _GOOGLE)


def _first_here(environ: Mapping[str, str], names: Tuple[str, ...]) -> str:
    return next((environ[name] for name in names if _is_here(environ.get(name, ""))), NOWHERE)
