"""
The network between controllers and cloud: what is lost, late, stale, cut short or refused on the way.

Every call of every controller passes through `SimulatedNetwork.answer`. The faults are drawn from the seed alone.
"""

import json
import math
from collections import Counter

import requests

from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.error_bodies import plain_error
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.api_errors import ErrorArrival, cases
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.emulator.state.values import methods
from orchestrator.emulator.state.values.faults import FaultKind, FaultSpec
from orchestrator.errors import NotFoundError, PreconditionError, TransientError
from tests.simulation.virtual_threads import sleep

STALE_FOR = 25.0
"""Seconds for which a caller may get old lists in a row: less than the time between two witnesses."""
OLD_LISTS = 20
OLDEST = 900.0
"""Seconds for which a list may go on being shown after it stopped being true."""
STALE_FOR_DOWN = True
REFUSALS = {
    "tpu.nodes.create": ("concurrent operation", "quota exceeded", "stockout", "preempted while creating"),
    "tpu.nodes.delete": ("concurrent operation",),
    "tpu.queuedResources.create": ("quota exceeded",),
    "compute.instances.insert": ("quota on call", "stockout", "preempted while creating"),
    "compute.instances.start": ("stockout", "still stopping"),
    "storage.objects.insert": ("rate of one object",),
}
MUTATING = frozenset(
    {"tpu.nodes.create", "tpu.nodes.delete", "compute.instances.insert", "compute.instances.start",
     "compute.instances.stop", "compute.instances.delete", "storage.buckets.insert",
     "storage.buckets.setIamPolicy", "storage.buckets.delete", "storage.buckets.patch",
     "tpu.queuedResources.create", "tpu.queuedResources.delete"}
)  # fmt: skip
LISTS = frozenset({"tpu.nodes.list", "tpu.queuedResources.list", "compute.instances.list"})
TPU_LISTS = {"tpu.nodes.list": "nodes", "tpu.queuedResources.list": "queuedResources"}


class SimulatedNetwork:
    """
    Bring requests to the cloud and answers back, or not.

    *acting* returns the process that runs now, None outside of all. *quiet* means: no more faults. *report* is
    called with every call: process, method, request, status, fault.
    """

    def __init__(self, scheduler, inside, acting, *, rates, random, observed):
        self.scheduler, self.cloud, self.storage = scheduler, inside.cloud, inside.storage
        self.router, self.acting = inside.router, acting
        self.rates, self.random, self.report = rates, random, observed
        self.quiet = False
        self.faults = Counter()
        self.heartbeat_lists = lambda bucket: None
        self.calling = lambda process, method, request: None
        self._old, self._stale_since = {}, {}

    def answer(self, request, limit):
        """Answer one request of the process that runs now."""
        process = self.acting()
        method, parts = self._method(request)
        # The clients take the real time that a call has cost so far off its limit: here none has passed.
        limit = math.ceil(limit)
        if process is None:
            return dispatch(self.router, self.cloud, request)
        process.step()
        if method in MUTATING:
            self.calling(process, method, request)
        fault = "" if self.quiet else self._draw(method)
        try:
            response = self._carry(request, method, parts, fault, limit)
        except requests.RequestException as lost:
            self.report(process, method, request, type(lost).__name__, fault)
            raise
        self.report(process, method, request, response.status, fault)
        process.step()
        if response.status == 200 and fault in {"", "slow"}:
            self._stale_since.pop((process.name, request.path), None)
        return response

    def renew(self, bucket, name, data, generation):
        """
        Write the lease without the official client: renewals were 40 % of the cost of a run.

        They meet the same faults, and end in the same errors.
        """
        process = self.acting()
        process.step()
        method, storage = "storage.objects.insert", self.storage
        fault = "" if self.quiet else self._draw(method)
        self.faults[fault] += bool(fault)
        self.report(process, method, Request("PUT", f"{bucket}/{name}", {}, {}), "renewal", fault)
        seconds = self.random.uniform(1, 120) if fault == "slow" else 0.0
        if seconds:
            sleep(self.scheduler, min(seconds, 30.0))
        if fault == "api_error" or (seconds > 30 and self.random.random() < 0.5):
            raise TransientError("the service is unavailable")
        if bucket not in storage.buckets._buckets:
            raise NotFoundError("the bucket is gone")
        try:
            held = storage.objects.insert(bucket, name, data, {}, Preconditions(generation))
        except StorageError as error:
            raise PreconditionError(str(error)) from error
        if fault == "lost_answer" or seconds > 30:
            raise TransientError("the answer was lost")
        process.step()
        return held.generation

    def overhear(self, bucket):
        """
        Let the machines report, as for a list of their reports; the caller reads it without the client.

        Between two passes such lists were a tenth of all requests, and most find what the last one found.
        """
        process = self.acting()
        process.step()
        fault = "" if self.quiet else self._draw("storage.objects.list")
        self.faults[fault] += bool(fault)
        if fault == "slow":
            sleep(self.scheduler, self.random.uniform(1, 30))
        if fault in {"api_error", "lost_answer"}:
            raise TransientError("the service is unavailable")
        self.heartbeat_lists(bucket)

    def _method(self, request):
        found = self.router.find(request)
        return ("?", {}) if found is None else (getattr(found[0], "__name__", "?"), found[1])

    def _draw(self, method):
        """Return what goes wrong with this call, mostly nothing."""
        rates, r = self.rates, self.random
        point = r.random()
        for name in ("api_error", "lost_answer", "slow", "stale", "truncated", "stuck"):
            rate = getattr(rates, name)
            if point < rate:
                return name if self._possible(name, method) else ""
            point -= rate
        return ""

    def _possible(self, name, method):
        if name == "stale" and not STALE_FOR_DOWN and self.acting().command == "down":
            return False
        if name in {"stale", "truncated"}:
            return method in LISTS
        return method in methods.WITH_OPERATION if name == "stuck" else True

    def _carry(self, request, method, parts, fault, limit):
        if method == "storage.objects.list" and "heartbeat" in request.query.get("prefix", ""):
            self.heartbeat_lists(parts["bucket"])
        if method in MUTATING and not self.quiet:
            sleep(self.scheduler, self.random.uniform(0.1, 1.0))
        if fault:
            self.faults[fault] += 1
            return getattr(self, f"_{fault}")(request, method, limit)
        return self._through(request, method)

    def _through(self, request, method, fault=None):
        if fault is not None:
            self.cloud.kernel.state.faults[method] = [fault]
        response = dispatch(self.router, self.cloud, request)
        if method in LISTS and response.status == 200:
            known = self._old.setdefault(request.path, [])
            if not known or known[-1][1].body != response.body:
                self._old[request.path] = [*known[-OLD_LISTS:], (self.scheduler.now(), response)]
        return response

    def _api_error(self, request, method, limit):
        """Refuse the call or its operation: mostly for a moment, sometimes for want of something."""
        r = self.random
        known = REFUSALS.get(method, ())
        if known and r.random() < 0.4:
            case = r.choice(known)
            where = cases()[methods.error_table_of(method), case].where
            kind = FaultKind.CALL_ERROR if where is ErrorArrival.CALL else FaultKind.OPERATION_ERROR
            return self._through(request, method, FaultSpec(kind, case))
        if r.random() < 0.2:
            raise requests.ConnectionError("the network is down")
        status = r.choice((429, 500, 502, 503, 503, 503, 504))
        tpu = request.path.startswith("/v2/")
        reason = {429: "RESOURCE_EXHAUSTED" if tpu else "rateLimitExceeded"}.get(
            status, "UNAVAILABLE" if tpu else "backendError"
        )
        if tpu and status == 429:
            status, reason = 503, "UNAVAILABLE"
        return plain_error(request, status, reason, "The service is currently unavailable.")

    def _lost_answer(self, request, method, limit):
        """Let the call take effect and lose its answer."""
        response = self._through(request, method)
        if self.random.random() < 0.5:
            raise requests.ConnectionError("connection reset by peer")
        return plain_error(request, 503, "UNAVAILABLE", "lost") if response.status < 400 else response

    def _slow(self, request, method, limit):
        """Take up to 120 s, on the way there or back; the caller gives up at its limit."""
        seconds, early = self.random.uniform(1, 120), self.random.random() < 0.5
        if seconds <= limit:
            if early:
                sleep(self.scheduler, seconds)
            response = self._through(request, method)
            if not early:
                sleep(self.scheduler, seconds)
            return response
        if early:
            # It arrives after the caller has given up.
            process = self.acting()
            self.scheduler.after(seconds, lambda: self._late(process, request, method))
        else:
            self._through(request, method)
        sleep(self.scheduler, limit)
        raise requests.ReadTimeout(f"no answer within {limit:.0f} s")

    def _late(self, process, request, method):
        response = self._through(request, method)
        self.report(process, method, request, response.status, "late")

    def _stale(self, request, method, limit):
        """Show a list as it was a while ago; but never to a caller that looks again later."""
        key, now = (self.acting().name, request.path), self.scheduler.now()
        since = self._stale_since.get(key)
        known = self._old.get(request.path, [])
        ends = [*(began for began, _ in known[1:]), now]
        recent = [answer for (_, answer), end in zip(known, ends, strict=False) if now - end < OLDEST]
        if recent and (since is None or now - since < STALE_FOR):
            self._stale_since[key] = now if since is None else since
            return self.random.choice(recent)
        return self._through(request, method)

    def _truncated(self, request, method, limit):
        """Leave out what a part of the service did not answer, and say so."""
        response = self._through(request, method)
        if response.status != 200:
            return response
        body = json.loads(response.body)
        if method in TPU_LISTS:
            key = TPU_LISTS[method]
            body = {key: body.get(key, [])[1:], "unreachable": [request.path.split("/")[5]]}
        else:
            body = {**body, "items": body.get("items", [])[1:], "warning": {"code": "UNREACHABLE"}}
        return Response.of(body)

    def _stuck(self, request, method, limit):
        """Start an operation that takes very long; a creation may never end."""
        if method in {"tpu.nodes.create", "compute.instances.insert"} and self.random.random() < 0.7:
            return self._through(request, method, FaultSpec(FaultKind.STUCK))
        late = FaultSpec(FaultKind.LATENCY, seconds=self.random.uniform(300, 1700))
        return self._through(request, method, late)
