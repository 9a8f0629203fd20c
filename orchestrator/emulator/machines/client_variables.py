"""What points clients of Google Cloud at the local cloud, in a shell of its user and on its machines."""

# The second is the path that the override of the first ends with.
_SERVED = {"STORAGE": "/storage/v1/", "COMPUTE": "/compute/v1/", "TPU": "/", "SECRETMANAGER": "/"}
# What else gcloud asks for in work on TPUs, VMs and buckets. It gets an answer of the local cloud,
# where it would ask the real service for a project of that name.
_OTHERS = (
    "ARTIFACTREGISTRY", "CLOUDBILLING", "CLOUDQUOTAS", "CLOUDRESOURCEMANAGER", "CONTAINER", "IAM",
    "IAMCREDENTIALS", "LOGGING", "MONITORING", "ORGPOLICY", "OSCONFIG", "OSLOGIN", "PUBSUB",
    "SERVICEMANAGEMENT", "SERVICEUSAGE",
)  # fmt: skip


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
