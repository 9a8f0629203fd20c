"""
Export to JobSet and Kueue on GKE: `jobset.yaml`, `kueue.yaml`.

Sources: the CRDs and webhooks of JobSet 0.12 and Kueue 0.19, JobSet's example of a TPU multislice, xpk (names
of nodes, machines, spot and reservations), the documentation of GKE's Cloud Storage FUSE driver. Not tried on
a cluster.
"""

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.config.others.conversion import GKE
from orchestrator.domain.catalog import Accelerator
from orchestrator.domain.names import home_region
from orchestrator.domain.source.secret_refs import job_secrets
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError
from orchestrator.scripts.exports.job_script import (
    JobHost,
    grace,
    job_script,
    own_bucket,
    variables,
)
from orchestrator.scripts.exports.yaml_document import document
from orchestrator.scripts.render import bash_word

_EXAMPLE = "The image is that of JobSet's example for TPUs: name yours as job.image. "
# Documentation of the FUSE driver: pods on the host network need further settings to mount buckets.
_BETWEEN = (
    "Nor is it known whether slices need hostNetwork, which JobSet's example of a multislice sets; here it is not "
    "set, for the Cloud Storage FUSE driver restricts it. "
)
IMAGE = "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu:latest"
"""The image of JobSet's own example for TPUs. Its packages are not known here."""
BUCKET, CODE = "/tpuctl/bucket", "/tpuctl/code"
_MACHINES = {
    "v4": "ct4p-hightpu",
    "v5litepod": "ct5lp-hightpu",
    "v5p": "ct5p-hightpu",
    "v6e": "ct6e-standard",
}
_NAMES = {generation: f"tpu-{theirs}" for theirs, (generation, _) in GKE.items()}
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_UNKNOWN = (
    "Not known here, to be checked on your cluster: which packages the image has; whether quota of the Cloud TPU "
    "API, such as a grant of the TPU Research Cloud, counts for GKE; how soon a pod is told of a preemption."
)


def jobset_files(
    spec: Spec, project: str, accelerator: Accelerator, digest: str, slices: int
) -> dict[str, str]:
    """
    Return the manifests by file name; *digest* is the sha256 of the code in the bucket.

    Raise UsageError for a TPU type whose name on GKE is not known.
    """
    if _generation(accelerator) not in _NAMES:
        raise UsageError(
            f"tpu.type: GKE's name for {accelerator.type} is not known here", changed="nothing was written",
            hint=f"one of {', '.join(_NAMES)} is, for example --set tpu.type=v5litepod-8",
        )  # fmt: skip
    if slices > 1 and spec.job.checkpoint.dir != "bucket":
        raise UsageError(
            "several slices save into one folder: the job must write to the bucket itself",
            hint="add --set job.checkpoint.dir=bucket, if your framework does so", changed="nothing was written",
        )  # fmt: skip
    host = JobHost(
        project, own_bucket(spec, project, "jobset"), BUCKET, '"$JOB_COMPLETION_INDEX"', accelerator.hosts
    )
    return {
        "kueue.yaml": document(
            "Made by tpuctl export --to jobset: the queue, for Kueue 0.19 (kueue.x-k8s.io/v1beta2). "
            "nominalQuota counts chips; raise it to let several jobs run at a time.",
            *_queue(spec, accelerator, slices),
        ),
        "jobset.yaml": document(
            "Made by tpuctl export --to jobset: the job, for JobSet 0.12 (jobset.x-k8s.io/v1alpha2). "
            f"{'' if spec.job.image else _EXAMPLE}{_UNKNOWN} {_BETWEEN if slices > 1 else ''}"
            "README.md says what to do before kubectl apply, and what is unsupported.",
            _account(spec), _jobset(spec, host, accelerator, digest, slices),
        ),
    }  # fmt: skip


def jobset_steps(
    spec: Spec, project: str, accelerator: Accelerator, digest: str, slices: int
) -> Iterator[tuple[str, str]]:
    """Yield the steps before and after the start, each with its commands."""
    bucket = f"gs://{own_bucket(spec, project, 'jobset')}"
    flags = [
        f"--machine-type={_MACHINES[_generation(accelerator)]}-{accelerator.chips_per_host}t",
        f"--num-nodes={accelerator.hosts}",
    ]
    # As xpk does: no topology for a single host.
    flags += [f"--tpu-topology={accelerator.topology}"] if accelerator.hosts > 1 else []
    flags += ["--spot"] if spec.tpu.spot else []
    flags += (
        [f"--reservation-affinity=specific --reservation={spec.tpu.reservation}"]
        if spec.tpu.reservation
        else []
    )
    pool = "gcloud container node-pools create tpu-0 --cluster=CLUSTER --location=REGION --node-locations="
    what = "A cluster with JobSet, Kueue, workload identity and the Cloud Storage FUSE driver, and a node pool for"
    yield (
        f"{what} each slice (here {slices}), in one of {', '.join(spec.tpu.zones)}:",
        f"{pool}{spec.tpu.zones[0]} \\\n  {' '.join(flags)}",
    )
    # The driver needs uniform bucket-level access for writing.
    make = f"gcloud storage buckets create {bucket} --project={project} --location={home_region(spec)}"
    code = f"gcloud storage cp code/{digest}.tar.gz {bucket}/code/"
    data = [f"gcloud storage cp --recursive {bash_word(source)} {bucket}/data/{bash_word(place)}"
            for place, source in spec.job.data.items() if "://" not in source]  # fmt: skip
    yield (
        "The bucket, the code in it (after each change: a new export), and the data that tpuctl.yaml names:",
        "\n".join((f"{make} --uniform-bucket-level-access", code, *data)),
    )
    members = [f"{bucket} --role=roles/storage.objectUser"]
    members += [f"gs://{_bucket(source)[0]} --role=roles/storage.objectViewer"
                for source in spec.job.data.values() if "://" in source]  # fmt: skip
    account = spec.service_account
    who = f"serviceAccount:{account}" if account else (
        f"principal://iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/"
        f"{project}.svc.id.goog/subject/ns/default/sa/{spec.name}"
    )  # fmt: skip
    grants = [f"gcloud storage buckets add-iam-policy-binding {one} --member={who}" for one in members]
    if account:
        grants.append(
            f"gcloud iam service-accounts add-iam-policy-binding {account} --role=roles/iam.workloadIdentityUser "
            f"--member='serviceAccount:{project}.svc.id.goog[default/{spec.name}]'"
        )
    yield "What the job may do:", "\n".join(grants)
    if secrets := job_secrets(spec):
        read = f"gcloud secrets versions access --project={project}"
        words = [
            f"--from-file={name}=<({read} {ref.version} --secret={ref.name})" for name, ref in secrets.items()
        ]
        yield (
            "Secrets: their values are in no file.",
            " \\\n  ".join((f"kubectl create secret generic {spec.name}-secrets", *words)),
        )
    logs = f"kubectl logs -f -l jobset.sigs.k8s.io/jobset-name={spec.name} --prefix"
    yield (
        "Go, and look:",
        f"kubectl apply -f kueue.yaml -f jobset.yaml\nkubectl get workloads,jobsets,pods\n{logs}",
    )


def _generation(accelerator: Accelerator) -> str:
    return accelerator.type.partition("-")[0]


def _selector(spec: Spec, accelerator: Accelerator) -> dict[str, str]:
    chosen = {
        "cloud.google.com/gke-tpu-accelerator": _NAMES[_generation(accelerator)],
        "cloud.google.com/gke-tpu-topology": accelerator.topology,
    }
    if spec.tpu.spot:
        chosen["cloud.google.com/gke-spot"] = "true"
    if spec.tpu.reservation:
        chosen["cloud.google.com/reservation-name"] = spec.tpu.reservation.rpartition("/")[2]
    return chosen


def _queue(spec: Spec, accelerator: Accelerator, slices: int) -> Iterator[dict[str, Any]]:
    provisioning = "spot" if spec.tpu.spot else "reserved" if spec.tpu.reservation else "on-demand"
    flavor = f"{accelerator.type}-{provisioning}"
    api = "kueue.x-k8s.io/v1beta2"
    quota = {"name": "google.com/tpu", "nominalQuota": accelerator.chips * slices}
    yield {
        "apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": flavor},
        "spec": {"nodeLabels": _selector(spec, accelerator)},
    }  # fmt: skip
    yield {
        "apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": spec.name},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{
                "coveredResources": ["google.com/tpu"], "flavors": [{"name": flavor, "resources": [quota]}],
            }],
        },
    }  # fmt: skip
    yield {
        "apiVersion": api, "kind": "LocalQueue", "metadata": {"name": spec.name, "namespace": "default"},
        "spec": {"clusterQueue": spec.name},
    }  # fmt: skip


def _account(spec: Spec) -> dict[str, Any]:
    account = spec.service_account
    note = {"iam.gke.io/gcp-service-account": account} if account else {}
    return {
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": spec.name, "namespace": "default", **({"annotations": note} if note else {})},
    }  # fmt: skip


def _jobset(spec: Spec, host: JobHost, accelerator: Accelerator, digest: str, slices: int) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {
            "name": spec.name, "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": spec.name},
            # A slice of several hosts needs a node pool of its own: only there are its chips interconnected.
            **({"annotations": {_EXCLUSIVE: "cloud.google.com/gke-nodepool"}} if accelerator.hosts > 1 else {}),
        },
        "spec": {
            "failurePolicy": {
                "maxRestarts": spec.job.failures - 1,
                "rules": [
                    {"name": "ttl", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
                    # A preemption does not count as a failure: all slices restart, however often.
                    {"name": "preempted", "action": "RestartJobSetAndIgnoreMaxRestarts",
                     "onJobFailureReasons": ["PodFailurePolicy"]},
                ],
            },
            "replicatedJobs": [{
                "name": "slice", "replicas": slices,
                "template": {"spec": {
                    "parallelism": accelerator.hosts, "completions": accelerator.hosts, "completionMode": "Indexed",
                    "backoffLimit": 0, "activeDeadlineSeconds": int(spec.watch.ttl),
                    "podFailurePolicy": {"rules": [
                        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    ]},
                    "template": _pod(spec, host, accelerator, digest),
                }},
            }],
        },
    }  # fmt: skip


def _pod(spec: Spec, host: JobHost, accelerator: Accelerator, digest: str) -> dict[str, Any]:
    sources = [
        (f"data-{n}", place, *_bucket(source))
        for n, (place, source) in enumerate(spec.job.data.items()) if "://" in source
    ]  # fmt: skip
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": f"{spec.name}-secrets", "key": name}}}
        for name in job_secrets(spec)
    ]
    return {
        "metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}},
        "spec": {
            # If a pod restarted by itself, JobSet would see no failure and the slice would wait for it forever.
            "restartPolicy": "Never",
            "serviceAccountName": spec.name,
            "terminationGracePeriodSeconds": grace(spec) + 5,
            "nodeSelector": _selector(spec, accelerator),
            "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{
                "name": "job", "image": spec.job.image or IMAGE, "workingDir": CODE,
                # Kubernetes expands `$(` and `$$` itself; a doubled dollar sign reaches bash as one.
                "command": ["bash", "-c", re.sub(r"\$(?=[$(])", "$$", _script(spec, host, digest))],
                **({"env": secrets} if secrets else {}),
                "resources": {"limits": {"google.com/tpu": accelerator.chips_per_host}},
                "securityContext": {"privileged": True},
                "volumeMounts": [
                    {"name": "code", "mountPath": CODE}, {"name": "bucket", "mountPath": BUCKET},
                    *({"name": name, "mountPath": f"{CODE}/{place}", "readOnly": True}
                      for name, place, *_ in sources),
                ],
            }],
            "volumes": [
                {"name": "code", "emptyDir": {}},
                {"name": "bucket", "csi": _mount(host.bucket, "implicit-dirs")},
                *({"name": name, "csi": {**_mount(bucket, f"implicit-dirs{inside}"), "readOnly": True}}
                  for name, _, bucket, inside in sources),
            ],
        },
    }  # fmt: skip


def _script(spec: Spec, host: JobHost, digest: str) -> str:
    """Return the script of a pod: download the code, verify its sha256, unpack it, run the job."""
    words = {"TPUCTL_BUNDLE": digest, **variables(spec, host)}
    linked = [place for place, source in spec.job.data.items() if "://" not in source]
    return job_script(spec, host, "jobset", words, linked=linked, digest=digest)


def _bucket(source: str) -> tuple[str, str]:
    """Return the bucket of a gs:// folder, and the mount option that selects the folder."""
    bucket, _, inside = source.removeprefix("gs://").strip("/").partition("/")
    return bucket, f",only-dir={inside}" if inside else ""


def _mount(bucket: str, options: str) -> dict[str, Any]:
    return {
        "driver": "gcsfuse.csi.storage.gke.io",
        "volumeAttributes": {"bucketName": bucket, "mountOptions": options},
    }
