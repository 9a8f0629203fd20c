"""The keys of a heartbeat: names of its fields, of which agents of earlier releases had other ones for some."""

from __future__ import annotations

from typing import Any, Dict, Mapping

EARLIER_KEYS = {
    "began_at": "began_step",
    "programs_back": "xla_programs_restored",
    "programs_compiled": "xla_programs_compiled",
    "save_apart": "observed_save_interval",
    "save_cost": "save_pause",
    "save_cost_from": "save_pause_from",
    "save_every": "save_interval",
    "save_life": "time_between_interruptions",
    "save_stalled": "save_pauses",
    "starts": "attempts",
    "total_steps": "reported_target_steps",
    "unclaimed_bytes": "uncommitted_bytes",
    "unclaimed_complete": "uncommitted_complete",
    "unclaimed_files": "uncommitted_files",
}
"""The field that each key of an earlier release is: machines with that agent may still be at work."""


def with_current_keys(heartbeat: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the content of a heartbeat under its present keys; where both are there, the present one counts."""
    current = {key: value for key, value in heartbeat.items() if key not in EARLIER_KEYS}
    earlier = {EARLIER_KEYS[key]: value for key, value in heartbeat.items() if key in EARLIER_KEYS}
    return {**earlier, **current}
