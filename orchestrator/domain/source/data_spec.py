"""Interpret `job.data` of the deployment file."""

from orchestrator.domain.spec import Spec


def bucket_sources(spec: Spec) -> tuple[str, ...]:
    """Return the bucket folders (gs://...) that the machines read."""
    return tuple(source for source in dict.fromkeys(spec.job.data.values()) if source.startswith("gs://"))


def grant_line(source: str, account: str) -> str:
    """Return the gcloud command that lets the machines' account read *source*."""
    bucket = source.removeprefix("gs://").partition("/")[0]
    return (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} "
        f"--member=serviceAccount:{account} --role=roles/storage.objectViewer"
    )
