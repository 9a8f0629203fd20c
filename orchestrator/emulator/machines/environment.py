"""Build the environment of everything that runs on a machine: the local cloud, no credentials."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.emulator.machines.machine_python import programs
from orchestrator.emulator.machines.machine_settings import MARKER, SYSTEM_PATH, MachineSettings
from orchestrator.emulator.state.values.machine import Machine

# The last is the examples' folder of virtual environments, so that a replaced machine need not reinstall.
INHERITED = ("LANG", "TZ", "TPUCTL_VENV_CACHE")
TPU_DEVICES = 8
NO_PROXY = "localhost,127.0.0.1,::1,127.0.0.0/8"
# Name of the variable's API and the path that its override ends with.
_SERVED = {"STORAGE": "/storage/v1/", "COMPUTE": "/compute/v1/", "TPU": "/", "SECRETMANAGER": "/"}
# Other APIs that gcloud calls when working on TPUs, VMs and buckets. They must reach the local cloud, not the
# real service with a project of that name.
_OTHERS = (
    "ARTIFACTREGISTRY", "CLOUDBILLING", "CLOUDQUOTAS", "CLOUDRESOURCEMANAGER", "CONTAINER", "IAM",
    "IAMCREDENTIALS", "LOGGING", "MONITORING", "ORGPOLICY", "OSCONFIG", "OSLOGIN", "PUBSUB",
    "SERVICEMANAGEMENT", "SERVICEUSAGE",
)  # fmt: skip


def machine_environment(
    machine: Machine,
    settings: MachineSettings,
    *,
    files: Path,
    binaries: Path,
    temporary: Path,
    authorities: Path,
) -> dict[str, str]:
    """
    Return the environment of SSH sessions, cron jobs and scripts of *machine*, without HOME.

    *files* is the root of the machine's own files, *binaries* its folder of stand-ins, *authorities* its file
    of trusted certificates. Of the caller's environment only INHERITED and pip's package sources pass, so
    that no credentials can. No folder of the caller's PATH is on the machine's, nor is the Python that runs
    the local cloud.
    """
    # google-auth, JAX and gcloud use different variables for the metadata server.
    metadata = f"{machine.address}:{settings.metadata_port}"
    # 8 CPU devices for JAX, as many as one host of a v3-8.
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
        # Each machine has its own loopback address, because all share the computer's network.
        "TPUCTL_LOOPBACK": machine.address,
        MARKER: f"{settings.cloud_id}/{machine.id}",
        **dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), metadata),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        **client_variables(settings.endpoint, machine.project),
        # The proxy leads TensorFlow to the local cloud, and blocks other hosts (docs/rehearsal.md). Both
        # spellings, as programs read one or the other. Clients that do not support address ranges in no_proxy
        # reach the machines through the proxy.
        "TPUCTL_LOCAL_CLOUD": settings.endpoint.rstrip("/"),
        "TPUCTL_SETUP_PROXY": settings.setup_proxy,
        **dict.fromkeys(("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"), settings.proxy),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), NO_PROXY),
        **dict.fromkeys(("CURL_CA_BUNDLE", "SSL_CERT_FILE"), str(authorities)),
        # TensorFlow accepts any value. google-auth obeys only "true", so here it still finds the machine's token.
        "NO_GCE_CHECK": "True",
        **(devices if machine.kind == "tpu" else {}),
    }


def user_environment(environment: Mapping[str, str], user: str, home: Path, shell: str) -> dict[str, str]:
    """Add the variables of a login: HOME, USER, LOGNAME and SHELL."""
    return {**environment, "HOME": str(home), "USER": user, "LOGNAME": user, "SHELL": shell}


def _python_environment(settings: MachineSettings) -> dict[str, str]:
    """
    Return uv's settings: the computer's uv and interpreters, and one cache for all machines.

    TPUCTL_LOCAL_PYTHON is for programs that represent a part of the cloud (`watch --on-vm`), never for the
    job.
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

    Two features are switched off: gcsfs queries hierarchical namespaces over gRPC, and the storage client's
    telemetry thread requests the bucket by itself (docs/facts.md 3.2).
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
