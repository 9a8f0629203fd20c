"""Compute the digest of the job's settings, by which running machines are seen to have others."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from orchestrator.domain.record import Record
from orchestrator.domain.spec import MemorySpec, Spec

_FIRST_SETTINGS = {
    "JobSpec": (
        "command", "source", "data", "setup", "python", "run_on", "env", "secrets", "checkpoint", "progress",
        "memory", "target_steps", "failures", "stop_signal", "grace",
    ),
    "CheckpointSpec": ("format", "dir", "keep", "marker", "every", "save_seconds"),
    "ProgressSpec": ("step", "loss", "rate"),
    "MemorySpec": ("params_millions", "optimizer", "dtype", "shards", "activations_gb", "text_gb"),
}  # fmt: skip
"""Settings, in their order, whose repr was the digest in earlier versions. Never change this."""
_IN_DIGEST = {"save_pause": "save_seconds"}
"""The name in digests of a setting that had another one: a release that renames it must not restart any job."""


def job_digest(spec: Spec) -> str:
    """
    Return a digest of the job's settings, by which `up` detects that running machines have others.

    Settings that no machine receives are left out, and so are defaults: a release that adds a setting must
    not restart any job.
    """
    chosen = _chosen(replace(spec.job, source=".", memory=MemorySpec()))
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16]


def with_digest_of_today(spec: Spec, record: Record) -> Record:
    """Return the record with the present digest in place of an earlier version's for the same settings."""
    before = hashlib.sha256(_as_before(spec.job).encode()).hexdigest()[:16]
    # An upgrade of tpuctl must not restart running jobs.
    if record.job.settings != before:
        return record
    return replace(record, job=replace(record.job, settings=job_digest(spec)))


def _as_before(part: Any) -> str:
    """Return a section's repr as it was before the digest left defaults out."""
    if not is_dataclass(part):
        return repr(part)
    name = type(part).__name__
    of_today = {before: now for now, before in _IN_DIGEST.items()}
    values = ((one, getattr(part, of_today.get(one, one))) for one in _FIRST_SETTINGS[name])
    return f"{name}({', '.join(f'{one}={_as_before(value)}' for one, value in values)})"


def _chosen(part: Any) -> Any:
    """Return the settings of a section that differ from their defaults, as plain values."""
    if not is_dataclass(part):
        return dict(part) if isinstance(part, Mapping) else part
    found = {}
    for one in fields(part):
        value = getattr(part, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default:
            found[_IN_DIGEST.get(one.name, one.name)] = _chosen(value)
    return found
