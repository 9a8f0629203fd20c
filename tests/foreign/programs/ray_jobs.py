"""Ray's own checks of a job, and its count of hosts: one JSON line for each runtime_env.yaml given."""

import json
import sys
from pathlib import Path

from ray._private.runtime_env.packaging import get_uri_for_directory
from ray.dashboard.modules.dashboard_sdk import parse_runtime_env_args
from ray.dashboard.modules.job.common import JobSubmitRequest
from ray.runtime_env import RuntimeEnv
from ray.util.tpu import get_tpu_worker_resources


def read(path):
    given = parse_runtime_env_args(runtime_env=path)
    RuntimeEnv(**given)
    JobSubmitRequest(entrypoint="python3 -m tpuctl_job", runtime_env=given)
    for place in (given["working_dir"], *given["py_modules"]):
        get_uri_for_directory(place, include_gitignore=True, excludes=given.get("excludes"))
    job = given["env_vars"]
    hosts, resources = get_tpu_worker_resources(
        job["TPUCTL_TOPOLOGY"], job["TPUCTL_GENERATION"], chips_per_vm=int(job["TPUCTL_CHIPS"])
    )
    compile((Path(given["py_modules"][0]) / "__main__.py").read_text(), "driver", "exec")
    return {"hosts": hosts, "chips": resources["TPU"], "variables": job}


for path in sys.argv[1:]:
    try:
        print(json.dumps(read(path)))
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
