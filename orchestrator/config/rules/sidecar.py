"""Define the rules for sidecars."""

from collections.abc import Iterator

from orchestrator.config.rules.rule import Problem, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec, TensorboardSpec
from orchestrator.planning.sidecars import Sidecar, sidecars

# Lower ports need root, and a notebook must not run as root.
LOWEST_PORT = 1024
HIGHEST_PORT = 65535


def _vm(spec: Spec, _: Catalog) -> Iterator[Problem]:
    for sidecar in sidecars(spec, ""):
        if sidecar.role == "vm" and spec.vm == "none":
            yield Problem(
                at("sidecars", sidecar.name, "on"),
                "it runs on the VM, but vm is none",
                "write on: tpu, or describe the vm",
            )


def _ports(spec: Spec, _: Catalog) -> Iterator[Problem]:
    taken: dict[tuple[str, int], Sidecar] = {}
    for sidecar in sidecars(spec, ""):
        path = at("sidecars", sidecar.name, "port")
        if not LOWEST_PORT <= sidecar.port <= HIGHEST_PORT:
            hint = f"use a port from {LOWEST_PORT} to {HIGHEST_PORT}"
            yield Problem(path, f"{sidecar.port} is not a port that a sidecar may use", hint)
        other = taken.setdefault((sidecar.role, sidecar.port), sidecar)
        if other is not sidecar:
            yield Problem(
                path, f"{other.name} on the same machine has port {sidecar.port} already", "use another one"
            )


def _logdir(spec: Spec, _: Catalog) -> Iterator[Problem]:
    board = spec.sidecars.tensorboard
    if not isinstance(board, TensorboardSpec):
        return
    scheme, sign, path = board.logdir.rpartition("://")
    # TensorBoard separates folders by commas, and `..` would leave the deployment's folder in the bucket.
    plain = board.logdir.isprintable() and ".." not in path.split("/") and path.strip("/")
    if not plain or (sign and scheme != "gs") or "," in path:
        text = f'"{board.logdir[:60]}" is not a folder of a bucket'
        yield Problem("sidecars.tensorboard.logdir", text, "for example tensorboard, or gs://BUCKET/runs")
    elif not sign and path.startswith("/"):
        text = f'"{board.logdir[:60]}" is a path on a machine; the folder must be in the bucket'
        yield Problem("sidecars.tensorboard.logdir", text, "remove the first /")


RULES = (
    SettingRule(("sidecars.tensorboard", "sidecars.jupyter", "vm"), _vm),
    SettingRule(("sidecars.tensorboard", "sidecars.jupyter"), _ports),
    SettingRule(("sidecars.tensorboard",), _logdir),
)
