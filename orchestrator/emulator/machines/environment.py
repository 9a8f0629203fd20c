"""The environment of everything that runs on a machine: the local cloud, and no credentials."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.emulator.machines.host_settings import MARKER, SYSTEM_PATH, HostSettings
from orchestrator.emulator.machines.machine_python import programs
from orchestrator.emulator.state.machine import Machine

# The examples keep their virtual environments in that folder: a replaced machine need not install again.
INHERITED = ("LANG", "TZ", "TPUCTL_VENV_CACHE")
TPU_DEVICES = 8
NO_PROXY = "localhost,127.0.0.1,::1,127.0.0.0/8"
# The second is the path that the override of the first ends with.
_SERVED = {"STORAGE": "/storage/v1/", "COMPUTE": "/compute/v1/", "TPU": "/", "SECRETMANAGER": "/"}
# What else gcloud asks for in work on TPUs, VMs and buckets. It gets an answer of the local cloud,
# where it would ask the real service for a project of that name.
_OTHERS = (
    "ARTIFACTREGISTRY", "CLOUDBILLING", "CLOUDQUOTAS", "CLOUDRESOURCEMANAGER", "CONTAINER", "IAM",
    "IAMCREDENTIALS", "LOGGING", "MONITORING", "ORGPOLICY", "OSCONFIG", "OSLOGIN", "PUBSUB",
    "SERVICEMANAGEMENT", "SERVICEUSAGE",
)  # fmt: skip


def machine_environment(
    machine: Machine,
    settings: HostSettings,
    *,
    files: Path,
    binaries: Path,
    temporary: Path,
    authorities: Path,
) -> dict[str, str]:
    """
    Return what SSH sessions, cron jobs and scripts of *machine* see, HOME excepted.

    *files* is the root of the machine's own files, *binaries* its folder of stand-ins, *authorities* the
    file of certificates that it trusts. Only what INHERITED names passes from the caller, so that no
    credential variable can; of pip's settings, where packages come from. No folder of the caller's PATH
    is on the machine's, nor is the Python that runs the local cloud.
    """
    # google-auth, JAX and gcloud read different names of the metadata server.
    metadata = f"{machine.address}:{settings.metadata_port}"
    # 8 CPU devices for JAX, as many as one v3-8 host has.
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={TPU_DEVICES}", "JAX_PLATFORMS": "cpu"}
    return {
        **{key: os.environ[key] for key in INHERITED if key in os.environ},
        **settings.package_sources,
        **_python_environment(settings),
        "PATH": os.pathsep.join([str(binaries), str(programs(files)), SYSTEM_PATH]),
        "TMPDIR": str(temporary),
        "TPUCTL_ROOT": str(files / "opt/tpuctl"),
        "TPUCTL_CRON_DIR": str(files / "etc/cron.d"),
        "TPUCTL_SSH_DIR": str(files / "etc/ssh"),
        # Machines share the computer's network: each has its own loopback address.
        "TPUCTL_LOOPBACK": machine.address,
        MARKER: f"{settings.cloud_id}/{machine.id}",
        **dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), metadata),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        **client_variables(settings.endpoint, machine.project),
        # They lead TensorFlow to the local cloud, and nobody else out (docs/rehearsal.md). Programs read one
        # spelling or the other. Clients that know no address ranges in no_proxy reach the machines' addresses
        # through the proxy all the same.
        "TPUCTL_LOCAL_CLOUD": settings.endpoint.rstrip("/"),
        "TPUCTL_SETUP_PROXY": settings.setup_proxy,
        **dict.fromkeys(("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"), settings.proxy),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), NO_PROXY),
        **dict.fromkeys(("CURL_CA_BUNDLE", "SSL_CERT_FILE"), str(authorities)),
        # TensorFlow reads it in any case; google-auth knows only "true", and finds the machine's token.
        "NO_GCE_CHECK": "True",
        **(devices if machine.kind == "tpu" else {}),
    }


def user_environment(environment: Mapping[str, str], user: str, home: Path, shell: str) -> dict[str, str]:
    """Add what a login adds: HOME, USER, LOGNAME and SHELL."""
    return {**environment, "HOME": str(home), "USER": user, "LOGNAME": user, "SHELL": shell}


def _python_environment(settings: HostSettings) -> dict[str, str]:
    """
    Return the settings of uv: the computer's program and interpreters, and one cache for all machines.

    TPUCTL_LOCAL_PYTHON is for what stands in for a part of the cloud (`watch --on-vm`), never for the job.
    """
    values = {"TPUCTL_LOCAL_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    if settings.shared:
        values["UV_CACHE_DIR"] = str(settings.shared / "packages")
    if settings.pythons:
        values["UV_PYTHON_SEARCH_PATH"] = os.pathsep.join(
            str(one.parent) for one in settings.pythons.values()
        )
    if settings.uv:
        values["TPUCTL_LOCAL_UV"] = str(settings.uv)
    return values


def client_variables(endpoint: str, project: str) -> dict[str, str]:
    """
    Return the variables of Google's clients, TensorStore, Arrow and gcloud.

    gcsfs asks for hierarchical namespaces over gRPC unless told not to, and the storage client's
    telemetry thread asks for the bucket by itself (docs/facts.md 3.2): both are turned off.
    """
    endpoint = endpoint.rstrip("/")
    overrides = {**_SERVED, **dict.fromkeys(_OTHERS, "/")}
    return {
        "GOOGLE_CLOUD_PROJECT": project,
        "STORAGE_EMULATOR_HOST": endpoint,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint,
        "TENSORSTORE_GCS_HTTP_URL": endpoint,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        **{f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": endpoint + path for name, path in overrides.items()},
    }
