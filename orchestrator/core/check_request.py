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


RULES = (Rule(("tpu.reservation", "tpu.zones", "tpu.request", "tpu.spot"), _reservation),)
"""
The rules of this file.
"""
