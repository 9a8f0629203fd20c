"""
When two states are the same for whoever comes next: all that a process can see, without what only names.

Whoever comes next decides by states, ages, and what the record says. Random ids, generations, serial numbers,
what the events tell, and journals that nobody reads are left out; times count as ages in whole seconds.
"""

import hashlib
import json
import re

from orchestrator.contract.bucket import object_names

UNREAD = (object_names.EVENTS, object_names.LEASE, object_names.RECORD)
"""Objects that are described in another way below, or that no decision reads."""
PASSING = ("serial", "fence")
TIME = re.compile(r"\b1[89]\d{8}(\.\d+)?\b")
LONG = re.compile(r"[0-9a-f]{16,}|\d{12,}")


def fingerprint(lab, *, journal, lease=False):
    """
    Return the same text for states that are alike.

    *journal* says that somebody may read it, *lease* that somebody may have to wait until it has run out.
    """
    observed = [
        _cloud(lab),
        _bucket(lab, journal=journal, lease=lease),
        _disk(lab),
        lab.machines.running,
    ]
    text = json.dumps(observed, sort_keys=True, default=str)
    now = lab.clock.now()
    text = LONG.sub("#", TIME.sub(lambda found: f"{now - float(found[0]):.0f} s", text))
    return hashlib.sha256(text.encode()).digest()


def _cloud(lab):
    """Describe what exists and what is under way."""
    state = lab.cloud.kernel.state
    nodes = [
        (
            n.name,
            n.zone,
            n.state.name,
            n.health.name,
            n.body.get("labels"),
            n.body["acceleratorType"],
            n.created,
        )
        for n in state.nodes.values()
    ]
    queued = [(q.name, q.zone, q.state.name, q.created, q.not_after) for q in state.queued.values()]
    vms = [(v.name, v.zone, v.status.value, dict(v.labels)) for v in state.instances.values()]
    due = sorted((event.kind, event.due) for event in state.heap)
    paid = sorted({u.resource for u in state.usage})
    return [sorted(nodes), sorted(vms), sorted(map(str, queued)), sorted(map(str, state.disks)), due, paid]


def _bucket(lab, *, journal, lease):
    """Describe the bucket, and its objects by content; of a heartbeat its age counts."""
    held = [(b.name, b.location, b.policy, b.fields) for b in lab.storage.buckets.list("local-project")]
    objects = {o.name: (o.crc32c, o.updated) for o in lab.storage.objects.all()}
    reported = {
        name: value for name, value in objects.items() if not name.startswith((*UNREAD, object_names.JOURNAL))
    }
    held_since = {name: value[1] for name, value in objects.items() if name.startswith(object_names.LEASE)}
    leases = held_since if lease else list(held_since)
    retained = [_record(lab, lab.get(object_names.RECORD)) if object_names.RECORD in objects else None]
    intents = [_intent(lab.get(name)) for name in sorted(objects) if name.startswith(object_names.JOURNAL)]
    return [held, reported, leases, retained, intents if journal else []]


def _intent(data):
    """Describe the journal without its times."""
    return {key: value for key, value in json.loads(data).items() if key not in {"id", "checksum"}}


def _record(lab, data):
    """Describe a record; an operation is what has become of it."""
    try:
        body = json.loads(data)
        retained = {key: value for key, value in body["history"].items() if key not in PASSING}
    except (ValueError, KeyError):
        return data.decode(errors="replace")
    known = lab.cloud.kernel.state.operations
    for operation in retained["operations"]:
        name = operation["id"].rsplit("/", 1)[-1]
        found = known.get(name)
        operation["id"] = [found.ended is not None, str(found.error)] if found else None
    return [body["deployment"], retained, "checksum" in body]


def _disk(lab):
    """Describe what the computers store: the record in full, of the journal whether its last line is whole."""
    reported = {}
    for path in lab._disks():
        data = path.read_bytes()
        if path.name == "record.json":
            reported[str(path)] = _record(lab, data)
        else:
            reported[str(path)] = data[-1:].decode() if path.name == "journal.jsonl" else data.decode()
    return reported
