"""The job's data as the deployment file names it."""

from orchestrator.domain.spec import Spec


def bucket_sources(spec: Spec) -> tuple[str, ...]:
    """Return the folders of buckets that the machines read."""
    return tuple(source for source in dict.fromkeys(spec.job.data.values()) if source.startswith("gs://"))


def grant_line(source: str, account: str) -> str:
    """Return the command that lets the machines' account read a source."""
    bucket = source.removeprefix("gs://").partition("/")[0]
    return (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} "
        f"--member=serviceAccount:{account} --role=roles/storage.objectViewer"
    )
