"""
Export a job for an existing Ray cluster: `runtime_env.yaml`, `submit.sh` and a driver for all hosts.

Source: the code of Ray 2.60, which marks all of `ray.util.tpu` as alpha. Tried on hosts without TPUs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.domain.catalog import Accelerator
from orchestrator.domain.names import home_region
from orchestrator.domain.spec import Spec
from orchestrator.scripts.exports.job_script import (
    JobHost,
    grace,
    job_script,
    own_bucket,
    variables,
)
from orchestrator.scripts.exports.yaml_document import document
from orchestrator.scripts.render import bash_word, render

_MODULE = "tpuctl_job"


def ray_files(
    spec: Spec, project: str, accelerator: Accelerator, source: Path, folder: Path
) -> dict[str, str]:
    """Return the files by name; Ray uploads the code in *source*, and *folder* is where the files will be."""
    host = JobHost(
        project, own_bucket(spec, project, "ray"), '"$SHARED"', '"$TPUCTL_WORKER_ID"', accelerator.hosts
    )
    job = {
        # Ray names a generation by the type before the dash: v5litepod, not v5e.
        "TPUCTL_TOPOLOGY": accelerator.topology, "TPUCTL_GENERATION": accelerator.type.partition("-")[0],
        "TPUCTL_CHIPS": str(accelerator.chips_per_host), "TPUCTL_FAILURES": str(spec.job.failures),
        "TPUCTL_STOP_SIGNAL": spec.job.stop_signal, "TPUCTL_GRACE_SECONDS": str(grace(spec)),
    }  # fmt: skip
    ignored = source / ".tpuctlignore"
    environment: dict[str, Any] = {
        "working_dir": str(source), "py_modules": [str(folder.absolute() / _MODULE)], "env_vars": job,
        # Ray itself excludes what .gitignore names.
        **({"excludes": ignored.read_text().splitlines()} if ignored.is_file() else {}),
    }  # fmt: skip
    return {
        f"{_MODULE}/__main__.py": render("export/ray_job.py", {}),
        # In a file of its own, since Ray expands `$NAME` in env_vars.
        f"{_MODULE}/job.sh": job_script(
            spec, host, "ray", variables(spec, host), linked=tuple(spec.job.data), shared=_needs_shared(spec)
        ),
        "runtime_env.yaml": document(
            "Made by tpuctl export --to ray, for Ray 2.60. Put no secret here: Ray shows it in its dashboard.",
            environment,
        ),
        "submit.sh": render(
            "export/ray_submit.sh.j2", {"shared": _needs_shared(spec), "deployment": spec.name}
        ),
    }


def _needs_shared(spec: Spec) -> bool:
    """Return whether the job needs a folder shared by all hosts, for checkpoints or data."""
    return spec.job.checkpoint.dir != "bucket" or bool(spec.job.data)


def ray_steps(spec: Spec, project: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the steps, each with its commands."""
    yield (
        "A Ray cluster on a slice, and Ray's own command, of the same version:",
        "pip install 'ray[default]'\nexport RAY_API_SERVER_ADDRESS=http://HEAD:8265",
    )
    bucket = f"gs://{own_bucket(spec, project, 'ray')} --project={project} --location={home_region(spec)}"
    yield "The bucket:", f"gcloud storage buckets create {bucket}"
    copies = [f"gcloud storage cp --recursive {bash_word(source)} SHARED/data/{bash_word(place)}"
              for place, source in spec.job.data.items()]  # fmt: skip
    if copies:
        yield "The data, into a folder SHARED that all hosts of the cluster see:", "\n".join(copies)
    shared = "SHARED=/FOLDER/ALL/HOSTS/SEE " if _needs_shared(spec) else ""
    yield "Go:", f"{shared}{bash_word(str(folder / 'submit.sh'))}"
