"""Serve the control routes of `tpuctl local`: /_local/..."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from orchestrator.emulator.address import PREFIX
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.state.local_cloud import LocalCloud


def admin_routes(
    router: Router,
    cloud: LocalCloud,
    stop: Callable[[], None],
    refused: Mapping[str, int],
    images: Sequence[Mapping[str, str]] = (),
) -> None:
    """
    Register status, preempt, kill, state, fault and stop.

    *refused* counts requests that the proxy refused; *images* describes the machines of each kind.
    """

    def status(request: Request) -> Response:
        machines = [
            {"id": m.id, "name": m.name, "address": m.address, "running": cloud.machine_state(m.id).running}
            for m in cloud.machines()
        ]
        tpus = [
            {"name": n.name, "zone": n.zone, "state": n.state.name, "machines": [w.id for w in n.workers]}
            for n in cloud.nodes()
        ]
        vms = [
            {"name": v.name, "zone": v.zone, "state": v.status.name, "machines": [v.machine_id]}
            for v in cloud.vms()
        ]
        queued = [{"name": q.name, "zone": q.zone, "state": q.state.name} for q in cloud.queued_resources()]
        faults = [{"method": method, "fault": asdict_text(fault)} for method, fault in cloud.unused_faults()]
        bill = [asdict(line) for line in cloud.bill()]
        return Response.of(
            {
                "machines": machines,
                "tpus": tpus,
                "vms": vms,
                "queued": queued,
                "unused_faults": faults,
                "bill": bill,
                "calls": dict(cloud.calls),
                "refused": dict(refused),
                "images": list(images),
            }
        )

    def state(body: Mapping[str, Any]) -> None:
        kind, _, name = body["name"].partition("/")
        # A zone of nodes is no such kind: `ZONE/NAME` names a node where two zones have one.
        if name and kind == "queued":
            cloud.set_queued_state(name, body["state"])
        elif name and kind == "zone":
            cloud.set_zone_state(name, body["state"])
        else:
            cloud.set_node_state(body["name"], body["state"])

    acts: dict[str, Callable[[Mapping[str, Any]], None]] = {
        "preempt": lambda body: cloud.preempt(body["name"], notice=bool(body.get("notice", True))),
        "kill": lambda body: cloud.kill_worker(body["name"], int(body.get("worker", 0))),
        "state": state,
        "fault": lambda body: cloud.fail_next(body["method"], body["faults"]),
        "stop": lambda _: stop(),
    }
    router.add("GET", f"{PREFIX}/status", status)
    for name, act in acts.items():
        router.add("POST", f"{PREFIX}/{name}", partial(_done, act))


def _done(act: Callable[[Mapping[str, Any]], None], request: Request) -> Response:
    act(request.json())
    return Response.of({})


def asdict_text(fault: object) -> str:
    """Return a fault in the form that `tpuctl local fault` accepts."""
    kind = getattr(fault, "kind", None)
    case = getattr(fault, "case", "")
    return str(case or getattr(kind, "value", kind))
