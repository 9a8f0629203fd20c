"""
Delete this TPU node when the deployment's time is over and no tpuctl works on it (`watch.self_delete`).

cron runs it every minute. The machine's own clock is never used, and whatever cannot be read keeps the node.
If the bucket is unreachable, the node is deleted only a day after the end set at its creation, by the clock
of the TPU API.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.parse import quote

from orchestrator.agent.cloud.metadata import Metadata, Tokens
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.cloud.transport import Reply, Transport, time_of
from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine.emulator_guard import tpu_endpoint
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import say
from orchestrator.agent.telemetry.heartbeat import heartbeat_name
from orchestrator.contract.backoff import Backoff
from orchestrator.contract.bucket.object_names import LEASE, RECORD
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError, FinalError, TransientError
from orchestrator.contract.phase import Phase
from orchestrator.contract.replacing import write_atomically

MARGIN = 300.0
"""Seconds after the end in which a running loop may delete the node itself."""
HELD = 120.0
"""Seconds since its last renewal for which a lease is respected: twice its lifetime."""
BLIND = 86400.0
"""Seconds after the end set at creation from which an unreachable bucket does not keep the node."""
FOLLOWERS = 60.0
"""Seconds that worker 0 waits for the last commits of the slice's other workers."""
STAND_IN = 900.0
"""Seconds after which another worker deletes the node if worker 0 has not."""
PAUSES = Backoff(60.0, 3600.0)
"""After a refused deletion, from one minute of cron to an hour: a missing permission is not granted in minutes."""
ASKING = 20.0
"""Seconds for one question to the bucket, less than the minute after which cron asks again."""


@dataclass(frozen=True)
class SelfDeletionFacts:
    """
    The result of one check: *now* by a clock of Google's, and the deployment's *end* (0: none).

    *lease_age* is None if the lease is free. *blind* means that the bucket did not answer, so *end* is the
    one set at the node's creation.
    """

    now: float
    end: float
    lease_age: Optional[float] = None
    blind: bool = False


def stays(observed: SelfDeletionFacts) -> str:
    """Return why the node must stay, "" if its time is over."""
    if observed.end <= 0:
        return "no end is set"
    if observed.blind:
        return "" if observed.now >= observed.end + BLIND else "the bucket does not answer"
    if observed.now < observed.end + MARGIN:
        return "its time is not over"
    if observed.lease_age is not None and observed.lease_age < HELD:
        return "another tpuctl works on the deployment"
    return ""


def turn(observed: SelfDeletionFacts, worker: int, workers: int) -> bool:
    """Return whether this worker is the one to delete the node now."""
    late = observed.now - observed.end - (BLIND if observed.blind else MARGIN)
    if worker == 0:
        return late >= (FOLLOWERS if workers > 1 else 0.0)
    return late >= STAND_IN


def end_of(record: bytes, deployment: str) -> float:
    """
    Return the deployment's end from its record in seconds since the epoch, 0 if self-deletion is off.

    Raise AgentError if the record is damaged or another deployment's.
    """
    try:
        body = json.loads(record)
        checksum = body.pop("checksum")
        # Hashed exactly as the controller writes it: sorted keys, the spaces of json.dumps.
        whole = checksum == hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        end = float(body["history"]["expires_at"])
        owner = str(body["deployment"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AgentError(f"the deployment record does not tell the end: {error!r}") from error
    if not whole or owner != deployment:
        raise AgentError("the deployment record is damaged or another deployment's")
    return end


class SelfDeletion:
    """
    One check, and the deletion of this node if its time is over.

    *made_until* is the end set at the node's creation. *leave* asks the agent for its last commit and waits
    at most the given seconds for its end.
    """

    def __init__(
        self,
        settings: Settings,
        made_until: float,
        bucket: JobBucket,
        api: NodeApi,
        whoami: Callable[[], OwnNode],
        leave: Callable[[float], object],
    ) -> None:
        self._settings = settings
        self._made_until = made_until
        self._bucket = bucket
        self._api = api
        self._whoami = whoami
        self._leave = leave
        self._state = SelfDeletionState(settings.layout)

    def step(self) -> int:
        """Return 0, or 1 if a necessary step failed."""
        try:
            return self._step()
        except (AgentError, OSError, ValueError) as error:
            self._state.say_news(f"it is not known whether this TPU has to delete itself: {error}")
            return 1

    def _step(self) -> int:
        node = self._whoami()
        observed = self._observe(node)
        if stays(observed):
            # Remembered, so that the log reports a failure of the bucket once and not every minute.
            if not observed.blind:
                self._state.say_news("")
            return 0
        if observed.now < self._state.next_try:
            return 1
        # Before the job is stopped: a new node of the same name must not lose its job to this deletion.
        resource, _ = self._api.get(node)
        self._check(resource)
        if resource.get("state") == "DELETING":
            return 0
        self._stop_the_job()
        observed = self._observe(node)
        if message := stays(observed):
            self._let_the_job_go_on(message)
            return 0
        if turn(observed, self._settings.worker, self._settings.workers):
            return self._delete(node, observed)
        return 0

    def _observe(self, node: OwnNode) -> SelfDeletionFacts:
        """Read lease and record from the bucket; without the bucket, the time from the TPU API."""
        try:
            held = self._bucket.read(RECORD, ASKING)
            # A missing record counts like an unreadable one: it does not permit the deletion.
            end = end_of(held.data if held is not None else b"", self._settings.deployment)
            age, now = self._bucket.age(LEASE, ASKING)
        except (AgentError, OSError, ValueError) as error:
            self._state.say_news(f"it is not known whether this TPU has to delete itself: {error}")
            return SelfDeletionFacts(self._api.get(node)[1], self._made_until, blind=True)
        return SelfDeletionFacts(now, end, age)

    def _check(self, resource: Mapping[str, Any]) -> None:
        """Raise FinalError unless the node is the one that this machine belongs to."""
        labels = resource.get("labels", {})
        wanted = (self._settings.deployment, str(self._settings.incarnation))
        found = (labels.get("tpuctl-deployment"), labels.get("tpuctl-incarnation"))
        if found != wanted:
            raise FinalError(f"{resource.get('name')} is labelled {found}, this machine belongs to {wanted}")

    def _stop_the_job(self) -> None:
        write_atomically(self._settings.layout.stop, "the deployment's time to live is over\n")
        # Written twice: cron must find the file once the agent is gone, and the agent overwrites it with its
        # own reason as it ends.
        self._leave(min(120.0, self._settings.grace + 35.0))
        write_atomically(self._settings.layout.stop, "the deployment's time to live is over\n")

    def _let_the_job_go_on(self, message: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            # The job was stopped for a deletion that does not happen; without this file cron starts
            # the agent again.
            self._settings.layout.stop.unlink()
        say(f"this TPU is not deleted, because {message}; cron starts the job again")

    def _delete(self, node: OwnNode, observed: SelfDeletionFacts) -> int:
        over = f"the deployment's time was over {observed.now - observed.end:.0f} s ago and no tpuctl works on it"
        try:
            self._api.delete(node)
        # Usually a role is missing, so it will be refused again; the pauses grow to an hour.
        except FinalError as error:
            pause = self._state.refused(observed.now)
            self._report(f"{over}, but this TPU may not delete itself (next try in {pause:.0f} s): {error}")
            return 1
        except AgentError as error:
            self._report(f"{over}; deleting this TPU did not work yet: {error}")
            return 1
        self._report(f"{over}: this TPU deletes itself")
        return 0

    def _report(self, text: str) -> None:
        """Report in the log and in the heartbeat; the agent, which usually writes that, has ended."""
        settings = self._settings
        self._state.say_news(text)
        body = {
            **read_json(settings.layout.status), "schema": 1, "deployment": settings.deployment,
            "incarnation": settings.incarnation, "worker": settings.worker, "workers": settings.workers,
            "phase": Phase.STOPPED, "message": text, "at": time.time(),
        }  # fmt: skip
        data = json.dumps(body, sort_keys=True)
        with contextlib.suppress(AgentError, OSError):
            write_atomically(settings.layout.status, data + "\n")
            self._bucket.write(
                heartbeat_name(settings.incarnation, settings.worker), data.encode(), timeout=ASKING
            )


class SelfDeletionState:
    """What must be remembered between two runs: messages already logged, and the time of the next try."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.self_delete
        self._body = read_json(self._path)

    @property
    def next_try(self) -> float:
        """Return the time before which a refused deletion is not retried."""
        return float(self._body.get("next_try", 0.0))

    def refused(self, now: float) -> float:
        """Return the seconds until the next try; they grow with each refusal."""
        count = int(self._body.get("refusals", 0)) + 1
        pause = PAUSES.after(count)
        self._body.update(refusals=count, next_try=now + pause)
        self._save()
        return pause

    def say_news(self, text: str) -> None:
        """Log *text* unless it was the last message."""
        if text and text != self._body.get("said", ""):
            say(text)
        if text != self._body.get("said", ""):
            self._body["said"] = text
            self._save()

    def _save(self) -> None:
        with contextlib.suppress(OSError):
            write_atomically(self._path, json.dumps(self._body) + "\n")


def made_until(environ: Mapping[str, str]) -> float:
    """Return the end set at this node's creation in seconds since the epoch, 0 if there is none."""
    try:
        return float(environ.get("TPUCTL_SELF_DELETE_AT") or 0.0)
    except ValueError:
        return 0.0


TIMEOUT = 20.0
"""Seconds for one call of the API, less than the minute after which cron tries again."""
_LINE = re.compile(r"^(\w+): '(.*)'$", re.MULTILINE)


@dataclass(frozen=True)
class OwnNode:
    """The TPU node that this machine belongs to."""

    project: str
    zone: str
    name: str

    @property
    def path(self) -> str:
        """Return the node's resource name."""
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.name}"


def own_node(metadata: Metadata) -> OwnNode:
    """
    Return the node according to the metadata server; files of this machine are not trusted.

    Raise AgentError if the server lacks project, zone or name.
    """
    facts = dict(_LINE.findall(metadata.get("instance/attributes/tpu-env").text))
    zone = metadata.get("instance/zone").text.strip().rpartition("/")[2]
    project, name = facts.get("CONSUMER_PROJECT_ID", ""), facts.get("NODE_ID", "")
    if not (project and zone and name):
        raise AgentError("the metadata server does not name project, zone and node")
    return OwnNode(project, zone, name)


class NodeApi:
    """
    The TPU API for one node, with the machine's service account.

    Calls raise TransientError for failures that a retry may fix, FinalError for a refusal.
    """

    def __init__(self, environ: Mapping[str, str], metadata: Metadata) -> None:
        self._base = tpu_endpoint(environ)
        self._tokens = Tokens(metadata, optional=False)
        self._transport = Transport()

    def get(self, node: OwnNode) -> Tuple[Dict[str, Any], float]:
        """Return the node's resource and the API's time."""
        reply = self._call("GET", node)
        value: Dict[str, Any] = json.loads(reply.body)
        return value, time_of(reply)

    def delete(self, node: OwnNode) -> None:
        """Request the node's deletion; a missing node is no error."""
        self._call("DELETE", node, gone_is_fine=True)

    def _call(self, method: str, node: OwnNode, gone_is_fine: bool = False) -> Reply:
        url = f"{self._base}/v2/{quote(node.path)}"
        reply = self._transport.send(method, url, self._tokens.headers(), timeout=TIMEOUT)
        if reply.status < 300 or (reply.status == 404 and gone_is_fine):
            return reply
        text = f"{method} {node.path}: {reply.status} {_message(reply)}"
        may_pass = reply.status in (401, 408, 409, 429) or reply.status >= 500
        raise (TransientError if may_pass else FinalError)(text)


def _message(reply: Reply) -> str:
    """Return Google's message, else the beginning of the body."""
    error = (json_value(reply.body) or {}).get("error")
    if isinstance(error, dict) and "message" in error:
        return str(error["message"])[:300]
    return reply.body[:200].decode("utf-8", "replace")
