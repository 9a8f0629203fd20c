"""SkyPilot's own parser: one JSON line for each file of the command line, with what it understands, or why not."""

import json
import sys

import sky
from sky.utils import yaml_utils


def read(path):
    config = yaml_utils.read_yaml(path)
    # As `sky jobs launch --secret NAME` gives them.
    given = [(name, "value") for name in config.get("secrets") or ()]
    task = sky.Task.from_yaml_config(config, secrets_overrides=given)
    task.validate_name()
    task.validate_run()
    task.expand_and_validate_workdir()
    task.expand_and_validate_file_mounts()
    found = list(task.resources)
    return {
        "name": task.name, "run": task.run, "setup": task.setup or "", "envs": task.envs,
        "secrets": sorted(task.secrets),
        "types": [next(iter(one.accelerators)) for one in found], "zones": [one.zone for one in found],
        "spot": [one.use_spot for one in found], "arguments": found[0].accelerator_args or {},
        "recovery": found[0].job_recovery,
        "mounts": {place: one.name for place, one in task.storage_mounts.items()},
        "files": task.file_mounts or {}, "workdir": task.workdir,
    }  # fmt: skip


for path in sys.argv[1:]:
    try:
        print(json.dumps(read(path)))
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
