"""Say which Python a job finds on its machine."""

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec

VM_PYTHON = "3.12"
"""The Python of the usual image of VMs, Ubuntu 24.04 (docs/facts.md 5.5)."""


def python_text(spec: Spec, catalog: Catalog, *, local: bool = False) -> str:
    """
    Return the Python of the job in words, "" in a container, which has its own.

    *local* machines have the image's version only where this computer has it (docs/python.md).
    """
    if spec.job.image:
        return ""
    known = _of_image(spec, catalog)
    if spec.job.python:
        return f"{spec.job.python} by job.python" + (f"; the image has {known}" if known else "")
    here = " (a machine of the local cloud may have another one: `tpuctl local status`)" if local else ""
    return f"{known}, the image's{here}" if known else "not known for this image"


def _of_image(spec: Spec, catalog: Catalog) -> str:
    if spec.job.run_on == "tpu":
        return catalog.python_of(spec.tpu.runtime or catalog.runtime_for(spec.tpu.type) or "")
    return VM_PYTHON if spec.vm != "none" and spec.vm.image is None else ""
