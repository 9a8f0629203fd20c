"""
Rules about the way a TPU is asked for: at once, through the queue, out of a reservation.
"""

import re
from collections.abc import Iterator

from orchestrator.core.catalog import Catalog
from orchestrator.core.rule import Problem, Rule
from orchestrator.core.spec import Spec

_RESERVATION = re.compile(r"(?:projects/[^/]+/locations/([^/]+)/reservations/)?[A-Za-z0-9-]+")
"""A name as gcloud takes it (`-` is any of the project), or the full name of the API."""

LONGEST_RUN = 7 * 86400.0
"""Seconds that a flex-start TPU may run (docs/facts.md 1.5)."""


def _reservation(spec: Spec, _: Catalog) -> Iterator[Problem]:
    tpu, key = spec.tpu, "tpu.reservation"
    if tpu.reservation is None:
        return
    found = _RESERVATION.fullmatch(tpu.reservation)
    if not found:
        text = f'"{tpu.reservation[:80]}" is neither a name nor projects/P/locations/ZONE/reservations/NAME'
        yield Problem(key, text, "see: gcloud alpha compute tpus reservations list --zone ZONE")
    elif len(tpu.zones) > 1:
        yield Problem("tpu.zones", "a reservation lies in one zone", "name that zone only")
    elif found[1] and found[1] != tpu.zones[0]:
        yield Problem("tpu.zones", f"the reservation lies in {found[1]}", f"write zones: [{found[1]}]")
    if tpu.request != "queued":
        text = "the API takes the name of a reservation for queued resources only"
        yield Problem(key, text, "set tpu.request: queued")
    if tpu.spot:
        yield Problem(key, "reserved TPUs are not spot", "set tpu.spot: false")


def _flex_start(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    tpu, key = spec.tpu, "tpu.max_run_duration"
    if tpu.request != "flex-start":
        if tpu.max_run_duration is not None:
            yield Problem(
                key, "only flex-start TPUs have one", "set tpu.request: flex-start, or leave it out"
            )
        return
    if tpu.spot:
        yield Problem("tpu.request", "flex-start TPUs are not spot", "set tpu.spot: false")
    if tpu.max_run_duration is not None and not 0 < tpu.max_run_duration <= LONGEST_RUN:
        yield Problem(key, f"{tpu.max_run_duration} is not between 1s and 7d", "leave it out for 7d")
    found = catalog.accelerator(tpu.type)
    for index, zone in enumerate(tpu.zones if found else ()):
        if found and (zone, found.generation) not in catalog.flex_start:
            known = sorted(at for at, kind in catalog.flex_start if kind == found.generation)
            text = f"nobody has told that {zone} offers flex-start for {tpu.type}"
            hint = f"known to: {', '.join(known)}" if known else "no zone is known to offer it for this type"
            yield Problem(f"tpu.zones[{index}]", text, hint, fatal=False)


RULES = (
    Rule(("tpu.reservation", "tpu.zones", "tpu.request", "tpu.spot"), _reservation),
    Rule(("tpu.request", "tpu.max_run_duration", "tpu.spot", "tpu.zones", "tpu.type"), _flex_start),
)
"""
The rules of this file.
"""
