"""
Encode and decode the record: one flat JSON object with the same keys since the first version.

Machines read `expires_at` from it (orchestrator.agent.machine.self_delete), and older versions of tpuctl may read
the rest.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from orchestrator.domain.checksum import bytes_with_checksum, checksum, proven
from orchestrator.domain.first_seen import (
    BUCKET_ABSENT,
    VM_ABSENT,
    VM_COMING,
    VM_HAS_RUN,
    VM_RUNNING,
    Condition,
    FirstSeen,
    of_name,
    of_node,
)
from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.record import Record, Refusal, Shape
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.records.record_checks import check_record
from orchestrator.errors import UNFORESEEN, ConflictError, DamagedRecordError, TpuctlError

SCHEMA = 1
BODY = "history"
"""Key of the record within the JSON; checksum, proof and owner stand beside it."""
NESTED = {
    "incarnation": "node.incarnation",
    "zone": "node.zone",
    "type": "node.type",
    "substitute": "node.type",  # Earlier versions read this key where the file prefers another type.
    "accepted": "node.accepted",
    "requested_at": "node.requested_at",
    "highest": "node.highest",
    "shape": "node.shape",
    "unwanted": "node.unwanted",
    "preemptions": "node.preemptions",
    "queued": "node.queued",
    "round": "race.round",
    "claimed": "race.claimed",
    "rivals": "race.candidates",
    "vm_accepted": "vm.accepted",
    "bucket_seen": "bucket.observed",
    "bucket_ready": "bucket.ready",
    "grants": "bucket.grants",
    "granted_at": "bucket.granted_at",
    "bundle": "job.bundle",
    "agent": "job.agent",
    "uploaded": "job.uploaded",
    "pushed": "job.pushed",
    "job": "job.settings",
    "settings_due": "job.settings_due",
    "before_down": "job.before_down",
    "remote_failed_since": "ssh.failed_since",
    "next_remote_at": "ssh.next_try_at",
    "on_demand": "deadline.on_demand",
    "flex_start": "deadline.flex_start",
    "progress": "deadline.progress",
    # The old words stay: earlier versions read and write these keys.
    "mute": "silence.never_reported",
    "beacons": "silence.heartbeat_at_boot",
    "sightings": "first_seen",
    "expires_at": "self_delete_at",
    "places": "capacity_history",
    "starts": "up_times",
    "reason": "message",
}
ZONE_KEYS = {"preemptions": "lives", "out_by_preemption": "out_by_loss"}
"""Keys of a zone's stored history whose field has another name."""
PROGRESS_KEYS = {"commit_interval": "loss", "seconds_per_step": "pace"}
"""The same of a ProgressEstimate."""
PARTS = {path.partition(".")[0] for path in NESTED.values() if "." in path}
NAMES = [field.name for field in fields(Record)]
STORED = {**NESTED, **{name: name for name in NAMES if name not in PARTS and name not in NESTED.values()}}
"""Path of each stored key's value in a Record."""


def with_stored(record: Record, values: Mapping[str, Any]) -> Record:
    """Return the record with *values*, which are named by their stored keys."""
    for key, value in values.items():
        part, _, name = STORED[key].rpartition(".")
        inner = {part: replace(getattr(record, part), **{name: value})} if part else {name: value}
        record = replace(record, **inner)
    return record


def stored_values(record: Record) -> dict[str, Any]:
    """Return the values of a record by their stored keys."""
    found = {}
    for key, path in STORED.items():
        part, _, name = path.rpartition(".")
        found[key] = getattr(getattr(record, part) if part else record, name)
    return found


def encode(record: Record, deployment: str, writer: str = "", key: bytes = b"") -> bytes:
    """Return the record as JSON; *writer* names the process that writes it, *key* signs it."""
    body: dict[str, Any] = {"schema": SCHEMA, "deployment": deployment, "writer": writer}
    sane = _readable(record)
    plain = replace(sane, first_seen={}, node=replace(sane.node, shape=None))
    body[BODY] = _flat(adapter(Record).dump_python(plain, mode="json"))
    body[BODY]["shape"] = str(sane.node.shape or "")
    ended = sane.outcome.value if sane.outcome else ""
    body[BODY]["outcome"] = _STORED_OUTCOMES.get(ended, ended)
    for refusal in body[BODY]["refusals"]:
        # Earlier versions show this message and know no separate code, so it stays in the text.
        refusal["message"] = " ".join(filter(None, (refusal.pop("code"), refusal["message"])))
    for operation in body[BODY]["operations"]:
        operation["verb"] = _WORDS.get(operation["verb"], operation["verb"])
    for span in (*body[BODY]["spans"], *body[BODY]["disks"]):
        # Of a few spans only; without it the record is that of earlier versions.
        if span["end_observed"] is None:
            del span["end_observed"]
    body[BODY]["progress"] = _renamed(body[BODY]["progress"], PROGRESS_KEYS)
    body[BODY]["places"] = stored_zones(body[BODY]["places"])
    body[BODY]["sightings"] = {state_text(state): since for state, since in sane.first_seen.items()}
    return bytes_with_checksum(proven(body, key) if key else body)


def _readable(record: Record) -> Record:
    """Return the record without numbers that JSON cannot hold: one of them would make all of it unreadable."""
    if _is_sane(record):
        return record
    alone = {key: {key: value} for key, value in stored_values(record).items()}
    sane = {key: one[key] for key, one in alone.items() if _is_sane(with_stored(Record(), one))}
    return with_stored(Record(), sane)


def _is_sane(record: Record) -> bool:
    try:
        check_record(record)
    except UNFORESEEN:
        return False
    return True


def decode(data: bytes, deployment: str) -> Record:
    """
    Parse a record.

    Raise DamagedRecordError if its checksum does not fit, ConflictError if it is another deployment's,
    TpuctlError if a newer version wrote it.
    """
    try:
        body = json.loads(data)
        schema, owner = body["schema"], body["deployment"]
        # The checksum first: only an intact record is believed to be of a newer version.
        whole = body.pop("checksum") == checksum(body)
        record = _record(body[BODY]) if schema == SCHEMA else Record()
        check_record(record)
    except UNFORESEEN as error:
        raise DamagedRecordError(
            cut(f"the deployment record cannot be read: {error}", 1000), changed="nothing of it was used"
        ) from error
    if not whole:
        raise DamagedRecordError(
            "the deployment record is damaged: its checksum does not fit", changed="nothing of it was used"
        )
    if schema != SCHEMA:
        raise TpuctlError(
            f"the deployment record has schema {cut(str(schema), 40)}, this tpuctl knows {SCHEMA}",
            hint="use the tpuctl that wrote it, or a newer one",
            changed="nothing was changed",
        )
    if owner != deployment:
        raise ConflictError(
            f"the bucket belongs to the deployment {cut(str(owner), 80)}, not to {deployment}",
            hint="one bucket serves one deployment: choose another bucket.name, or a bucket.prefix",
            changed="nothing was changed",
        )
    return record


def _record(stored: Mapping[str, Any]) -> Record:
    nested = _nested(stored)
    if "disks" not in nested:
        # Earlier versions recorded no disks: they billed the VM's disk for the time in which the VM ran.
        nested["disks"] = [span for span in nested.get("spans", ()) if span.get("kind") == Kind.VM.value]
    names = {key: name for name, key in PROGRESS_KEYS.items()}
    nested["deadline"]["progress"] = _renamed(nested["deadline"].get("progress", {}), names)
    nested["capacity_history"] = zones_of(nested.get("capacity_history", ()))
    since = adapter(dict[str, float]).validate_python(nested.pop("first_seen", {}))
    shape = _SHAPE.fullmatch(nested["node"].pop("shape", ""))
    stored_operations = nested.get("operations", ())
    nested["operations"] = [{**one, "verb": _SIGNS[one["verb"]]} for one in stored_operations]
    nested["outcome"] = _OUTCOMES.get(str(nested.get("outcome")), nested.get("outcome")) or None
    record: Record = adapter(Record).validate_python(nested)
    refusals = tuple(_with_code(refusal) for refusal in record.refusals)
    node = replace(
        record.node, shape=shape and Shape(shape[1], shape[2], shape[3] == "spot", shape[4] == "yes")
    )
    return replace(record, node=node, first_seen=states_of(since), refusals=refusals)


def _with_code(refusal: Refusal) -> Refusal:
    """Return a refusal with its code, which is stored as a part of its text."""
    found = _CODE.fullmatch(refusal.message)
    return replace(refusal, code=found[1], message=found[2] or "") if found else refusal


def stored_zones(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a capacity history as JSON with its stored keys."""
    return [_renamed(one, ZONE_KEYS) for one in history]


def zones_of(stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a capacity history from JSON, by the names of the fields of a ZoneHistory."""
    names = {key: name for name, key in ZONE_KEYS.items()}
    return [_renamed(one, names) for one in stored]


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def state_text(doubt: FirstSeen) -> str:
    """Return the stored key of a doubtful state."""
    state = doubt.state.name.lower() if isinstance(doubt.state, NodeState) else doubt.state.value
    if doubt.kind is not Kind.NODE:
        return f"{doubt.kind.value}:{state}"
    if doubt.state is Condition.MADE or isinstance(doubt.id, str):
        return f"{state}:{doubt.id}"
    return f"node:{doubt.id}:{state}"


def states_of(since: Mapping[str, float]) -> dict[FirstSeen, float]:
    """Return the doubtful states by their stored keys; unknown keys of a newer version are left out."""
    found = ((_state_of(key), at) for key, at in since.items())
    return {state: at for state, at in found if state is not None}


def _state_of(key: str) -> FirstSeen | None:
    head, _, rest = key.partition(":")
    number, _, state = rest.partition(":")
    if head == Kind.NODE.value and number.isdecimal() and state in _STATES:
        return of_node(int(number), _STATES[state])
    if head == Condition.MADE.value and rest.isdecimal():
        return of_node(int(rest), Condition.MADE)
    if head in _BY_NAME:
        return of_name(rest, Condition(head))
    return next((one for one in _SINGLE if state_text(one) == key), None)


def _nested(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested parts of a record from JSON; unknown fields of a newer version are left out."""
    found: dict[str, Any] = {part: {} for part in PARTS}
    for key, value in stored.items():
        part, _, name = STORED.get(key, "").rpartition(".")
        if name:
            (found[part] if part else found)[name] = value
    return found


def _flat(parts: Mapping[str, Any]) -> dict[str, Any]:
    flat = {}
    for key, path in STORED.items():
        part, _, name = path.rpartition(".")
        flat[key] = parts[part][name] if part else parts[name]
    return flat


_WORDS = {verb.value: verb.word for verb in Verb}
_SIGNS = {word: sign for sign, word in _WORDS.items()}
_STORED_OUTCOMES = {Outcome.LIMIT_REACHED.value: "spent", Outcome.UNCOMMITTED.value: "unclaimed"}
_OUTCOMES = {stored: word for word, stored in _STORED_OUTCOMES.items()}
_SINGLE = (BUCKET_ABSENT, VM_ABSENT, VM_COMING, VM_HAS_RUN, VM_RUNNING)
# Reads what `Shape.__str__` writes: change the two together, and keep reading the old form.
_SHAPE = re.compile("(.*), (.*), (spot|on demand), external address (yes|no)", re.DOTALL)
_CODE = re.compile(r"(TPU-\d{3})(?: (.*))?", re.DOTALL)
_BY_NAME = frozenset(
    {
        Condition.DELETION_REQUESTED.value,
        Condition.UNRECORDED.value,
        Condition.LAST_CREATING.value,
        Condition.ATTEMPT.value,
    }
)
# The state is the last part of a key: `creating` and `deleting` are states of an incarnation, but signs of a name.
_STATES = {sign.value: sign for sign in Condition} | {state.name.lower(): state for state in NodeState}


@cache
def adapter(kind: Any) -> Any:
    """Return the pydantic adapter for a type. Only this function imports pydantic, which is slow to load."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
