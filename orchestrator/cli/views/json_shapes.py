"""
Define the shape of every `--json` document, and derive its JSON Schema.

A shape is written with Python's own types: `str`, `[str]` for a list, a dictionary for an object ("key?" may
be missing), `maybe(x)` for x or null, `table(x)` for an object whose keys are names, `object` for anything.
Within one schema version keys are added, never removed or given another meaning.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.cli.console import SCHEMA_VERSION

OUTPUT_SCHEMA_ID = "urn:tpuctl:output"
OUTPUT_SCHEMA_FILE = "output.schema.json"

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def maybe(shape: Any) -> dict[str, Any]:
    """Return the schema of *shape* or null."""
    return {"$schema": {"anyOf": [schema_of(shape), {"type": "null"}]}}


def table(shape: Any) -> dict[str, Any]:
    """Return the schema of an object whose keys are names and whose values have *shape*."""
    return {"$schema": {"type": "object", "additionalProperties": schema_of(shape)}}


def schema_of(shape: Any, *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a shape; with *strict* an object has no other keys than those named."""
    if shape is object:
        return {}
    if isinstance(shape, type):
        return {"type": _NAMES[shape]}
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0], strict=strict)}
    if "$schema" in shape:
        found: dict[str, Any] = shape["$schema"]
        return found
    required = [key for key in shape if not key.endswith("?")]
    properties = {key.rstrip("?"): schema_of(value, strict=strict) for key, value in shape.items()}
    more = {"additionalProperties": False} if strict else {}
    return {"type": "object", "properties": properties, "required": required, **more}


_CHANGE = {
    "kind": str, "verb": str, "name": str, "zone": str, "incarnation": maybe(int), "message": str,
    "details": table(str),
}  # fmt: skip
_WAIT = {"what": str, "in_s": maybe(float), "message": str}
_PRICE_LINE = {
    "what": str, "meter": str, "spot_usd": maybe(float), "on_demand_usd": maybe(float),
    "billed_usd": maybe(float), "upper_usd": maybe(float),
}  # fmt: skip
_FINDINGS = {
    "ok": bool, "counts": table(int), "unread_files": [str],
    "findings": [{"rule": str, "level": str, "where": str, "message": str, "hint": str}],
}  # fmt: skip
_SAFETY_NET = {"name": str, "active": bool, "message": str}
_RECOVERY = {
    "incarnation": int,
    "parts_s": table(float),
    "total_s": maybe(float),
    "xla_programs_restored": maybe(int),
    "xla_programs_compiled": maybe(int),
    "message": str,
}
_SUMMARY = {
    "steps": maybe(int), "loss": maybe(float), "preemptions": int, "steps_redone": maybe(int),
    "steps_redone_is_lower_bound": bool, "upper_steps_redone": maybe(int),
    "steps_repeated": int, "recoveries": [_RECOVERY],
    "goodput": maybe(float), "wall_s": float, "usd": float, "on_demand_usd": float, "unpriced": [str],
    "save_pauses_s?": maybe(float), "measured_saves?": maybe(int), "upper_usd": float,
}  # fmt: skip
_RECOVERY_VERDICT = {
    "fault": str, "resumed": bool, "message": str, "ignored": bool, "steps_redone": maybe(int),
    "total_s": maybe(float),
    "defect": maybe(str), "parts_s": table(float), "warm_saved_s": maybe(float),
}  # fmt: skip
_SAVES = {
    "save_interval_s": maybe(float), "save_pause_s": maybe(float), "save_pause_from": str,
    "time_between_interruptions_s": maybe(float), "observed_save_interval_s": maybe(float), "message": str,
}  # fmt: skip
_LOCAL_OWNER = {"name": str, "zone": str, "state": str, "machines": [str]}
_OBSERVED = {"by": str, "age_s": float}

# Programs read these: keys may be added, but a removed or renamed one breaks them (SCHEMA_VERSION).
KINDS: Mapping[str, Any] = {
    "init": {
        "file": str, "recipe": maybe(str), "from?": str, "tool?": str,
        "rows?": [{"verdict": str, "theirs": str, "ours": str, "message": str}],
    },
    "adopt": {"tpu": str, "zone": str, "incarnation": int, "changes_count": int},
    "adopt-vm": {"vm": str, "zone": str, "at_down": str},
    "adopt-bucket": {"bucket": str, "at_down": str},
    "export": {"folder": str, "project": str, "files": [str], "unsupported": [{"what": str, "message": str}]},
    "plan": {
        "name": str, "state?": str, "project": maybe(str), "region": str, "zones": [str],
        "bucket": maybe(str),
        "bucket_location": str, "egress_usd_gib": table(maybe(float)),
        "changes": [_CHANGE], "waits_for": [_WAIT], "outcome": maybe(str), "message": str, "labels": object,
        "service_account": {"email": maybe(str), "message": str}, "scopes": [str],
        "secrets": table(str), "grants": [str], "safety_nets": [_SAFETY_NET],
        "price": {
            "zone": str, "lines": [_PRICE_LINE], "spot_usd_hour": maybe(float),
            "on_demand_usd_hour": maybe(float), "billed_usd_hour": maybe(float),
            "storage_usd_gib_month": maybe(float), "unpriced": [str], "ttl_s": float,
            "to_ttl_usd": maybe(float), "to_ttl_upper_usd": maybe(float), "budget_usd": maybe(float),
            "budget_lasts_s": maybe(float),
            "dates": table(str),
        },
        "saves?": maybe(_SAVES),
        "notes": [str], "compared_with?": str, "file?": str, "check?": _FINDINGS, "scripts?": table(str),
        "sent?": {"files_count": int, "bytes": int, "largest": [{"path": str, "bytes": int}]},
        "data?": [{
            "name": str, "source": str, "bytes": maybe(int), "files_count": maybe(int), "usd_month": maybe(float),
            "leads_to?": str,
        }],
        "excluded?": [{"path": str, "pattern": str, "files_count": int, "bytes": int}],
        "hooks?": table(str),
    },
    "config": {"file": str, "settings": [{"setting": str, "value": object, "origin": str}]},
    "check": {"name": str, "python": str, **_FINDINGS},
    "up": {"name": str, "bucket": str, "changes_count": int, "state": str},
    "watch": {"outcome": str, "message": str, "summary": _SUMMARY},
    "fleet-up": {
        "name": str, "bucket": str, "nodes_up": [str], "nodes_not_up": table(str), "nodes_surplus": table(str),
    },
    "fleet-status": {
        "name": str, "vm": str,
        "nodes": [{"name": str, "tpu": str, "zone": str, "slurm": str, "task": str}],
        "tasks_waiting": int, "tasks_running": int, "usd": float, "upper_usd": float, "message": str,
        "watcher_on": str, "nodes_requested": int, "nodes_max": int, "nodes_wanted": maybe(int),
        "node_usd_hour": maybe(float), "node_upper_usd_hour": maybe(float),
        "users": [{
            "user": str, "share": int, "nodes_max": maybe(int), "node_seconds": float, "tasks_running": int,
            "tasks_waiting": int,
            "usd": float, "upper_usd": float, "budget_usd": maybe(float), "over_budget": bool,
        }],
    },
    "fleet-plan": {
        "name": str, "nodes_max": int, "node_usd_hour": maybe(float), "vm_usd_hour": maybe(float), "ttl_s": float,
        "budget_usd": maybe(float), "quota": str, "quota_unknown": str,
        "nodes_room": maybe(int), "quota_missing": maybe(int),
    },
    "fleet-down": {"name": str, "leftovers": table(str), "data_remains": bool},
    "fleet-submit": {
        "job": str, "tasks_count": int, "ended": int,
        "dry_run?": bool, "files_count?": int, "bytes?": int, "usd?": maybe(float),
    },
    "fleet-queue": {
        "jobs": [
            {
                "name": str, "submitted_at": float, "user": str, "priority": str, "hold_reason": str,
                "after": [str],
                "tasks": [
                    {
                        "number": int, "state": str, "node": str, "restarts": int, "parameters": table(str),
                        "step": maybe(int), "loss": maybe(float), "steps_redone": maybe(int), "usd": float,
                        "uncommitted_message": str, "ignored_message": str,
                    }
                ],
                "usd": float, "node_seconds": float, "eta_s": maybe(float), "shortage?": str,
            }
        ],
        "message": str, "unread?": table(str),
    },
    "fleet-report": {"name": str, "file": str, "usd": float},
    "fleet-results": {"job": str, "columns": [str], "rows": [table(object)], "file": maybe(str)},
    "fleet-cost": {
        "name": str, "usd": float, "upper_usd": float, "on_demand_usd": float, "budget_usd": maybe(float),
        "complete": bool,
        "rows": [
            {
                "kind": str, "name": str, "node_seconds": float, "usd": float, "on_demand_usd": float,
                "lost_usd": float, "fraction": maybe(float),
            }
        ],
    },
    "fleet-cancel": {"job": str, "tasks_count": int},
    "fleet-retry": {"job": str, "tasks": [int]},
    "fleet-hold": {"job": str, "held": bool, "changed": bool},
    "fleet-fetch": {"tasks": [{"number": int, "step?": int, "start?": int, "folder": str}]},
    "watch-all": {
        "stopped": bool,
        "deployments": [{"name": str, "outcome": maybe(str), "message": str, "error": maybe(object)}],
    },
    "watch-on-vm": {"vm": str, "running": bool, "changes_count": int, "digest?": str, "state?": str},
    "status": {
        "name": str, "project": str, "state?": str, "outcome": maybe(str), "limit_reached?": str,
        "message?": str, "uncommitted_message?": str, "ignored_message?": str, "failing_message?": str,
        "aside_message?": str, "refusal_hint?": str, "rescued_message?": str, "incarnation": int,
        "unused_incarnations?": [int], "preemptions": int, "usd": float,
        "upper_usd?": float, "up?": bool, "deleted_at?": maybe(float),
        "unpriced?": [str],
        "resources": [{"kind": str, "name": str, "zone": str, "state": str}],
        "workers": [{
            "worker": int, "phase": str, "step": maybe(int), "loss": maybe(float), "loss_step": maybe(int),
            "checkpoint_step": maybe(int),
            "checkpoint_counted": bool, "saved_in_attempt": bool, "format": str, "steps_per_second": maybe(float),
            "reported_target_steps": maybe(int), "image?": str,
            "progress_from": str,
            "checkpoint_age_s": maybe(float), "heartbeat_age_s": float, "attempts": int, "message": str,
            "xla_programs_restored": maybe(int), "xla_programs_compiled": maybe(int),
        }],
        "checkpoint_step?": maybe(int), "resumes_from?": maybe(int),
        "watcher": object, "watch_on_vm?": bool, "safety_nets?": [_SAFETY_NET], "next_changes": [str],
        "waits_for?": [_WAIT], "next_pass_in_s": maybe(float), "watch_poll_s?": maybe(float),
        "target_steps": maybe(int),
        "eta_s": maybe(float), "budget_usd": maybe(float), "ttl_remaining_s": maybe(float),
        "deadline": maybe({"due": str, "forecast": str, "mode": str}), "saves?": maybe(_SAVES),
        "sidecars": [{"name": str, "on": str, "port": int}], "source": _OBSERVED,
    },
    "deployments": {
        "deployments": [{
            "name": str, "project": str, "message": str, "state": maybe(str), "outcome": maybe(str),
            "tpu": maybe(str), "job": maybe(str), "checkpoint_message": maybe(str),
            "preemptions": maybe(int), "usd": maybe(float), "source": maybe(_OBSERVED),
        }],
    },
    "push": {
        "name": str, "before": str, "bundle": str, "plan": [str], "result": str, "news": str, "failing": str,
    },
    "dashboard": {"url": str, "port": int},
    "report": {"name": str, "file": str, "events_count": int, "summary": _SUMMARY},
    "explain": {
        "name": str, "state": str, "headline": str, "observed_at": float, "rules": table(str),
        "items": [{
            "what": str, "state": str, "message": str, "rule": str,
            "evidence": [{"source": str, "at": maybe(float), "message": str}],
            "next": str, "when": maybe(float), "hint": str, "ok": bool, "needs_watcher": bool,
        }],
    },
    "cost": {
        "name": str, "state": str, "preemptions": int, "storage_gib": float, "caches_gib": float,
        "usd": float, "upper_usd": float, "machines_upper_usd": float, "on_demand_usd": float,
        "items": [{
            "what": str, "zone": str, "machines_count": int, "machine_seconds": float, "usd": maybe(float),
            "on_demand_usd": maybe(float),
        }],
        "usd_by_zone": table(float), "days": table(float), "uses": table(float), "unpriced": [str],
        "usd_hour": float, "upper_usd_hour": float, "ttl_remaining_s": maybe(float), "to_ttl_usd": maybe(float),
        "budget_usd": maybe(float), "budget_lasts_s": maybe(float), "preemptions_usd": float,
        "saved_usd": maybe(float), "lower_saved_usd": maybe(float), "to_ttl_upper_usd": maybe(float),
        "deleted_at": maybe(float), "earlier": [{"usd": float, "deleted_at": float}],
        "price": {"lines": [_PRICE_LINE], "dates": table(str)},
        "unwatched_ends": [{"name": str, "until": float, "observed_at": float, "upper_usd": float}],
    },
    "checkpoints": {
        "name": str,
        "checkpoints": [{
            "step": int, "incarnation": maybe(int), "workers_count": int, "bytes": int, "saved_at": float,
            "complete": bool, "message": str, "format": str, "resumes": bool, "verified": maybe(bool),
            "damage": [str], "counted": bool,
        }],
        "uncommitted": [{
            "incarnation": int, "complete": bool, "moment": str, "at": float, "bytes": int, "files": [str],
            "skipped": [{"name": str, "reason": str}],
        }],
    },
    "fetch": {
        "name": str, "step?": int, "incarnation?": int, "folder": str, "bytes": int, "files_count": int,
        "verified": bool,
    },
    "exec": {
        "results": [{
            "machine": str, "exit_code": maybe(int), "stdout": str, "stderr": str,
            "unknown_result": bool, "message": str, "code": maybe(str),
        }],
    },
    "cp": {
        "machine": str, "source": str, "target": str, "bytes": int, "files_count": int, "changed": [str],
        "skipped": [str], "error?": object,
    },
    "ssh-config": {
        "hosts": [str], "config": str, "file": maybe(str), "user_config?": str, "changed?": bool,
        "backup?": maybe(str),
    },
    "tunnel": {"service": str, "url": str, "port": int, "on": str},
    "rehearsal": {
        "done": bool, "recoveries": [_RECOVERY_VERDICT], "same_loss": maybe(bool), "loss": maybe(float),
        "undisturbed_loss": maybe(float), "torn": int, "longer_s": maybe(float), "hints": [str],
        "missed": int, "survives": bool, "verdict": str, "same_checkpoint": maybe(bool), "causes": [str],
        "checkpoint": maybe({"step": int, "files_count": int, "differ": [str]}), "folder": maybe(str),
        "failure": maybe(
            {"run": str, "outcome": maybe(str), "exit_code": maybe(int), "message": str, "log": [str]}
        ),
    },
    "down": {
        "leftovers": [{"kind": str, "name": str, "zone": str, "state": str}], "data_remains": bool,
        "ended_usd_hour": float, "usd": maybe(float), "on_demand_usd": maybe(float), "saved_usd": maybe(float),
        "lower_saved_usd": maybe(float), "unpriced": [str],
    },
    "prices": {
        "date": str, "file": str,
        "prices": [{
            "generation": str, "region": str, "multi_host": bool,
            "on_demand_usd_chip_hour": maybe(float), "spot_usd_chip_hour": maybe(float),
        }],
    },
    "zones": {
        "type": maybe(str), "generation": maybe(str), "date": str,
        "offers": [{
            "generation": str, "types": [str], "zones": [str], "unlisted": [str],
            "spot_usd_chip_hour": maybe(float), "spot_upper_usd_chip_hour": maybe(float),
            "on_demand_usd_chip_hour": maybe(float),
        }],
    },
    "selftest": {
        "name": str, "cloud": str, "leftovers": [str], "interrupted": bool,
        "stages": table({"result": str, "duration_s": float, "proves": str}),
        "differences": maybe([{"topic": str, "where": str, "recorded": str, "here": str}]),
    },
    "doctor": {
        "ok": bool, "counts": table(int), "fixed": [str],
        "findings": [{"rule": str, "group": str, "level": str, "message": str, "hint": str}],
    },
    "support": {"file": str, "files": [{"name": str, "bytes": int, "what": str}], "unread": table(str)},
    "local": {
        "running?": bool, "endpoint?": str, "project?": str, "started?": bool, "stopped?": bool,
        "reset?": bool, "name?": str, "worker?": maybe(int), "notice?": bool, "method?": str,
        "faults?": [str], "state?": str,
        "machines?": [{"id": str, "name": str, "address": str, "running": bool}],
        "tpus?": [_LOCAL_OWNER], "vms?": [_LOCAL_OWNER],
        "queued?": [{"name": str, "zone": str, "state": str}],
        "unused_faults?": [object], "bill?": [object], "calls?": table(int), "refused?": table(int),
        "images?": [{"kind": str, "image": str, "python": str, "python_of_image": str}],
    },
    "local-env": {"variables": table(str)},
    "notify": {"results": [{"receiver": str, "delivered": bool, "message": str}]},
    "secret": {"name": str, "version": int, "project": str},
    "secrets": {"project": str, "secrets": [{"name": str, "created": str}]},
    "error": {
        "code": str, "exit_code": int, "retry": str, "message": str, "changed": str, "hint": str,
        "help": str,
        "findings?": [{
            "level": str, "file": str, "line": maybe(int), "col": maybe(int), "setting": str, "message": str,
            "hint": str,
        }],
    },
}  # fmt: skip
"""The keys of each kind of document, besides `schema_version` and `kind`."""


def output_schema(kind: str | None = None, *, strict: bool = False) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of one kind of document, or of all of them."""
    head = {"schema_version": {"const": SCHEMA_VERSION}}
    documents = {}
    for name in KINDS if kind is None else (kind,):
        found = schema_of(KINDS[name], strict=strict)
        found["properties"] = {**head, "kind": {"const": name}, **found["properties"]}
        found["required"] = ["schema_version", "kind", *found["required"]]
        documents[name] = found
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": OUTPUT_SCHEMA_ID,
        "title": "what tpuctl prints with --json",
        "$defs": documents,
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in documents],
    }
