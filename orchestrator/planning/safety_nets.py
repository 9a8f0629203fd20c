"""Describe what ends the bill if tpuctl never runs again: three independent safety nets."""

from datetime import datetime, timezone

from orchestrator.domain.names import takes_vm
from orchestrator.domain.plan import Kind
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import SafetyNet


def safety_nets(spec: Spec, started_at: float = 0.0) -> tuple[SafetyNet, ...]:
    """
    Return the safety nets for VM and TPU, and the clean-up by the next command on this computer.

    *started_at* is when the deployment started (seconds since the epoch), 0 before that.
    """
    return (_vm(spec), _node(spec, started_at), _next_command(spec))


def _vm(spec: Spec) -> SafetyNet:
    if spec.vm == "none":
        return SafetyNet(Kind.VM.word, False, "there is no VM")
    if takes_vm(spec):
        return SafetyNet(
            name=Kind.VM.word,
            active=False,
            message="it has no limit at Google: it was adopted, not made by tpuctl",
        )
    more = " and an hour" if spec.watch.on_vm else ""
    verb = "stops" if spec.vm.spot else "deletes"
    return SafetyNet(
        name=Kind.VM.word,
        active=True,
        message=f"Google {verb} it after {spec.watch.ttl}{more} (maxRunDuration)",
    )


def _node(spec: Spec, started_at: float) -> SafetyNet:
    if not spec.watch.self_delete:
        if spec.tpu.request == "flex-start":
            return SafetyNet(
                name=Kind.NODE.word,
                active=True,
                message=f"Google deletes it {_run(spec)} after it was given (flex-start)",
            )
        # A spot or on-demand TPU has no end of its own; the text names the cost of a forgotten one.
        return SafetyNet(
            name=Kind.NODE.word,
            active=False,
            message="nothing deletes it by itself (to change that: watch.self_delete: true)",
        )
    end = datetime.fromtimestamp(started_at + spec.watch.ttl, timezone.utc)
    when = f"{end:%Y-%m-%d %H:%M} UTC" if started_at else f"{spec.watch.ttl}"
    return SafetyNet(Kind.NODE.word, True, f"it deletes itself after {when} and at most ten minutes")


def _run(spec: Spec) -> str:
    return str(spec.tpu.max_run_duration or "7d")


def _next_command(spec: Spec) -> SafetyNet:
    return SafetyNet(
        name="all",
        active=True,
        message=f"after {spec.watch.ttl} the next tpuctl command on this computer deletes what is left, before it "
        "does anything else",
    )
