"""Define the rules for sidecars."""

from collections.abc import Iterator

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec, TensorboardSpec
from orchestrator.planning.sidecars import Sidecar, sidecars


def _vm(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for sidecar in sidecars(spec, ""):
        if sidecar.on == "vm" and spec.vm == "none":
            yield SettingFinding(
                at("sidecars", sidecar.name, "on"),
                "it runs on the VM, but vm is none",
                "write on: tpu, or describe the vm",
            )


def _ports(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    taken: dict[tuple[str, int], Sidecar] = {}
    for sidecar in sidecars(spec, ""):
        path = at("sidecars", sidecar.name, "port")
        other = taken.setdefault((sidecar.on, sidecar.port), sidecar)
        if other is not sidecar:
            yield SettingFinding(
                path, f"{other.name} on the same machine has port {sidecar.port} already", "use another one"
            )


def _logdir(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    board = spec.sidecars.tensorboard
    if not isinstance(board, TensorboardSpec):
        return
    scheme, sign, path = board.logdir.rpartition("://")
    # TensorBoard separates folders by commas, and `..` would leave the deployment's folder in the bucket.
    plain = board.logdir.isprintable() and ".." not in path.split("/") and path.strip("/")
    if not plain or (sign and scheme != "gs") or "," in path:
        text = f'"{board.logdir[:60]}" is not a folder of a bucket'
        yield SettingFinding(
            "sidecars.tensorboard.logdir", text, "for example tensorboard, or gs://BUCKET/runs"
        )
    elif not sign and path.startswith("/"):
        text = f'"{board.logdir[:60]}" is a path on a machine; the folder must be in the bucket'
        yield SettingFinding("sidecars.tensorboard.logdir", text, "remove the first /")


RULES = (
    SettingRule(("sidecars.tensorboard", "sidecars.jupyter", "vm"), _vm),
    SettingRule(("sidecars.tensorboard", "sidecars.jupyter"), _ports),
    SettingRule(("sidecars.tensorboard",), _logdir),
)
