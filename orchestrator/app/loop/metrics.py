"""Serve Prometheus metrics of `tpuctl watch` on the loopback address."""

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from orchestrator.domain.status import DeploymentStatus
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HERE = "127.0.0.1"
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tpuctl_up": ("1 while the deployment goes on, 0 after its end", ()),
    "tpuctl_incarnation": ("number of the newest TPU that was requested", ()),
    "tpuctl_preemptions": ("TPUs that were taken away so far", ()),
    "tpuctl_cost_usd": ("estimated cost so far in USD", ()),
    "tpuctl_budget_usd": ("watch.budget_usd, if it is set", ()),
    "tpuctl_ttl_remaining_seconds": ("time until the deployment ends at the latest", ()),
    "tpuctl_target_steps": ("job.target_steps, if it is set", ()),
    "tpuctl_resource": ("1 for each resource in its state", ("kind", "name", "zone", "state")),
    "tpuctl_pending_changes": ("changes that the last pass wanted to make", ()),
    "tpuctl_last_pass_timestamp_seconds": ("when the last pass was made, in seconds since the epoch", ()),
    "tpuctl_worker_phase": ("1 for what each worker does", ("worker", "phase")),
    "tpuctl_worker_step": ("last step that a worker reported", ("worker",)),
    "tpuctl_worker_loss": ("last loss that a worker reported", ("worker",)),
    "tpuctl_worker_steps_per_second": ("steps a second, where they are known", ("worker",)),
    "tpuctl_worker_checkpoint_step": ("newest checkpoint of a worker", ("worker",)),
    "tpuctl_worker_checkpoint_age_seconds": ("age of that checkpoint", ("worker",)),
    "tpuctl_worker_heartbeat_age_seconds": ("time since a worker's last report", ("worker",)),
}
COUNTERS: Mapping[str, str] = {
    "tpuctl_passes_total": "passes of this loop",
    "tpuctl_failures_total": "changes that failed in passes of this loop",
}
PER_WORKER = {
    "tpuctl_worker_step": "step",
    "tpuctl_worker_loss": "loss",
    "tpuctl_worker_steps_per_second": "steps_per_second",
    "tpuctl_worker_checkpoint_step": "checkpoint_step",
    "tpuctl_worker_checkpoint_age_seconds": "checkpoint_age_s",
    "tpuctl_worker_heartbeat_age_seconds": "heartbeat_age_s",
}
SINGLE = {
    "tpuctl_incarnation": "incarnation",
    "tpuctl_preemptions": "preemptions",
    "tpuctl_cost_usd": "usd",
    "tpuctl_budget_usd": "budget_usd",
    "tpuctl_ttl_remaining_seconds": "ttl_remaining_s",
    "tpuctl_target_steps": "target_steps",
}


class Metrics:
    """
    A server of one deployment's metrics at http://127.0.0.1:PORT/metrics until `close`.

    Raise UsageError if the port is in use or prometheus-client is not installed.
    """

    def __init__(self, port: int, deployment: str) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise UsageError(
                "--metrics needs prometheus-client", hint="pip install 'tpuctl[metrics]'",
                changed="nothing was changed", code="TPU-138",
            ) from error  # fmt: skip
        registry = prometheus.CollectorRegistry()
        self._name = deployment
        self._gauges = {
            name: prometheus.Gauge(name, text, ("deployment", *labels), registry=registry)
            for name, (text, labels) in GAUGES.items()
        }
        self._counters = {
            name: prometheus.Counter(name, text, ("deployment",), registry=registry)
            for name, text in COUNTERS.items()
        }
        self._server: WSGIServer
        self._thread: threading.Thread
        try:
            self._server, self._thread = prometheus.start_http_server(port, HERE, registry)
            # Until this line the server answers without the filter, but its registry is still empty.
            self._server.set_app(for_no_page(prometheus.make_wsgi_app(registry)))
        except OSError as error:
            raise UsageError(
                f"metrics: port {port} of this computer cannot be used: {error.strerror}",
                hint="choose another port", changed="nothing was changed", code="TPU-135",
            ) from error  # fmt: skip

    @property
    def port(self) -> int:
        """Return the port, also if the system chose it."""
        return int(self._server.server_port)

    def update(self, status: DeploymentStatus, now: float, *, failures: int) -> None:
        """Set the metrics from one pass's *status*; *now* is in seconds since the epoch."""
        for gauge in self._gauges.values():
            # Cleared first, or a lost worker would keep its last values.
            gauge.clear()
        self._set("tpuctl_up", 0 if status.outcome else 1)
        self._set("tpuctl_pending_changes", len(status.next_changes))
        self._set("tpuctl_last_pass_timestamp_seconds", now)
        for name, key in SINGLE.items():
            self._set(name, getattr(status, key))
        for row in status.resources:
            self._set("tpuctl_resource", 1, row.kind, row.name, row.zone, row.state)
        for worker in status.workers:
            number = str(worker.worker)
            self._set("tpuctl_worker_phase", 1, number, worker.phase)
            for name, key in PER_WORKER.items():
                self._set(name, getattr(worker, key), number)
        self._counters["tpuctl_passes_total"].labels(self._name).inc()
        self._counters["tpuctl_failures_total"].labels(self._name).inc(failures)

    def _set(self, name: str, value: float | None, *labels: str) -> None:
        """Set one metric; an unknown value is left out."""
        if value is not None:
            self._gauges[name].labels(self._name, *labels).set(value)

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def for_no_page(app: "WSGIApplication") -> "WSGIApplication":
    """Wrap *app* so that no web page of another site can read it (DNS rebinding)."""

    def answer(environ: "WSGIEnvironment", start: "StartResponse") -> "Iterable[bytes]":
        # A page whose host name resolves to 127.0.0.1 sends that name as Host.
        name = environ.get("HTTP_HOST", "").rpartition(":")[0] or environ.get("HTTP_HOST", "")
        site = environ.get("HTTP_SEC_FETCH_SITE", "none")
        if name in (HERE, "localhost") and "HTTP_ORIGIN" not in environ and site in ("none", "same-origin"):
            return app(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"no web page and no other host name is answered\n"]

    return answer


def metrics_table() -> str:
    """Return the table of docs/metrics.md, as Markdown."""
    rows = [
        f"| `{name}` | {', '.join(('deployment', *labels))} | {text} |"
        for name, (text, labels) in GAUGES.items()
    ]
    rows += [f"| `{name}` | deployment | {text} |" for name, text in COUNTERS.items()]
    return "\n".join(["| metric | labels | meaning |", "| --- | --- | --- |", *rows]) + "\n"
