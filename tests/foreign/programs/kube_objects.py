"""Kubernetes' own schemas, and the client's models of a JobSet: one JSON line for each file of objects."""

import json
import sys
from pathlib import Path

import kubernetes_validate
import yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet


def read(path):
    for one in yaml.safe_load_all(Path(path).read_text()):
        if one["kind"] == "JobSet":
            if JobsetV1alpha2JobSet.from_dict(one).to_dict() != one:
                raise ValueError("the models lose a part of it")
            template = one["spec"]["replicatedJobs"][0]["template"]
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "a"},
                "spec": template["spec"],
            }
            kubernetes_validate.validate(job, "1.37", strict=True)
        elif not one["apiVersion"].startswith("kueue"):
            kubernetes_validate.validate(one, "1.37", strict=True)
    return {}


for path in sys.argv[1:]:
    try:
        print(json.dumps(read(path)))
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"[:500]}))
