"""Describe what ends the bill if tpuctl never runs again: three independent safety nets."""

from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from orchestrator.domain.names import takes_vm
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class SafetyNet:
    """One safety net: the resource it ends, whether it is armed, and in *text* when, or why not."""

    name: str
    armed: bool
    text: str

    def as_dict(self) -> dict[str, object]:
        """Return the safety net as `--json` prints it."""
        return asdict(self)


def safety_nets(spec: Spec) -> tuple[SafetyNet, ...]:
    """Return the safety nets for VM and TPU, and the clean-up by the next command on this computer."""
    return (_vm(spec), _node(spec), _next_command(spec))


def _vm(spec: Spec) -> SafetyNet:
    if spec.vm == "none":
        return SafetyNet("VM", False, "there is no VM")
    if takes_vm(spec):
        return SafetyNet("VM", False, "it has no limit at Google: it was adopted, not made by tpuctl")
    more = " and an hour" if spec.watch.on_vm else ""
    verb = "stops" if spec.vm.spot else "deletes"
    return SafetyNet("VM", True, f"Google {verb} it after {spec.watch.ttl}{more} (maxRunDuration)")


def _node(spec: Spec) -> SafetyNet:
    if not spec.watch.self_delete:
        if spec.tpu.request == "flex-start":
            return SafetyNet("TPU", True, f"Google deletes it {_run(spec)} after it was given (flex-start)")
        # A spot or on-demand TPU has no end of its own; the text names the cost of a forgotten one.
        return SafetyNet("TPU", False, "it runs until you delete it (or set watch.self_delete: true)")
    return SafetyNet("TPU", True, f"it deletes itself after {spec.watch.ttl} and at most ten minutes")


def _run(spec: Spec) -> str:
    return str(spec.tpu.max_run_duration or "7d")


def _next_command(spec: Spec) -> SafetyNet:
    return SafetyNet(
        "all", True, f"after {spec.watch.ttl}, the next tpuctl command on this computer deletes them"
    )


def auto_delete_text(spec: Spec, started_at: float) -> str:
    """Say when the TPU is deleted if no watcher runs; empty before the deployment has started."""
    if not started_at:
        return ""
    if not spec.watch.self_delete and spec.tpu.request == "flex-start":
        return f"Google deletes the TPU {_run(spec)} after it was given (flex-start)"
    if not spec.watch.self_delete:
        return "off (watch.self_delete)"
    end = datetime.fromtimestamp(started_at + spec.watch.ttl, timezone.utc)
    return f"the TPU deletes itself after {end:%Y-%m-%d %H:%M} UTC"
