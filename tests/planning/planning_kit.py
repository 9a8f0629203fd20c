"""Build a deployment from overrides."""

from orchestrator.config.adapter import restore


def a_spec(**overrides):
    """Return a valid Spec; keys are dotted with `__`, for example tpu__spot=False."""
    data = {
        "name": "demo",
        "project": "my-project",
        "tpu": {"type": "v5litepod-16", "zones": ["europe-west4-b"]},
        "job": {"command": "python3 train.py"},
    }
    for key, value in overrides.items():
        place = data
        *parents, name = key.split("__")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return restore(data)
