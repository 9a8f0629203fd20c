"""Define the rules for how a TPU is requested: at once, through the queue, with a reservation, with disks."""

import re
from collections.abc import Iterator

from orchestrator.config.rules.names_and_zones import LABEL
from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.machines.data_disks import READS, WRITES, data_disks
from orchestrator.domain.machines.queued_resource import MAX_RUN
from orchestrator.domain.spec import Spec

_RESERVATION = re.compile(r"(?:projects/[^/]+/locations/([^/]+)/reservations/)?[A-Za-z0-9-]+")
"""Name of a reservation as gcloud takes it (`-` is any of the project), or the full name of the API."""


def _reservation(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    tpu, key = spec.tpu, "tpu.reservation"
    if tpu.reservation is None:
        return
    found = _RESERVATION.fullmatch(tpu.reservation)
    if not found:
        text = f'"{tpu.reservation[:80]}" is neither a name nor projects/P/locations/ZONE/reservations/NAME'
        yield SettingFinding(key, text, "see: gcloud alpha compute tpus reservations list --zone ZONE")
    elif len(tpu.zones) > 1:
        yield SettingFinding("tpu.zones", "a reservation is in one zone", "name that zone only")
    elif found[1] and found[1] != tpu.zones[0]:
        yield SettingFinding("tpu.zones", f"the reservation is in {found[1]}", f"write zones: [{found[1]}]")
    if tpu.request != "queued":
        text = "the API takes the name of a reservation for queued resources only"
        yield SettingFinding(key, text, "set tpu.request: queued")
    if tpu.spot:
        yield SettingFinding(key, "reserved TPUs are not spot", "set tpu.spot: false")


def _flex_start(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    tpu, key = spec.tpu, "tpu.max_run_duration"
    if tpu.request != "flex-start":
        if tpu.max_run_duration is not None:
            yield SettingFinding(
                key, "applies only to flex-start TPUs", "set tpu.request: flex-start, or remove it"
            )
        return
    if tpu.spot:
        yield SettingFinding("tpu.request", "flex-start TPUs are not spot", "set tpu.spot: false")
    if tpu.max_run_duration is not None and not 0 < tpu.max_run_duration <= MAX_RUN:
        yield SettingFinding(key, f"{tpu.max_run_duration} is not between 1s and 7d", "leave it out for 7d")
    found = catalog.accelerator(tpu.type)
    for index, zone in enumerate(tpu.zones if found else ()):
        if found and (zone, found.generation) not in catalog.flex_start:
            known = sorted(at for at, kind in catalog.flex_start if kind == found.generation)
            text = f"{zone} is not known to offer flex-start for {tpu.type}"
            hint = f"known to: {', '.join(known)}" if known else "no zone is known to offer it for this type"
            yield SettingFinding(at("tpu.zones", index), text, hint, level=Level.WARN)


def _disks(spec: Spec, catalog: Catalog) -> Iterator[SettingFinding]:
    tpu, accelerator = spec.tpu, catalog.accelerator(spec.tpu.type)
    names = [disk.name for disk in data_disks(spec)]
    for index, disk in enumerate(data_disks(spec)):
        path = at("tpu.disks", index)
        if not re.fullmatch(f"{LABEL}(?::(?:{READS}|{WRITES}))?", tpu.disks[index]):
            text = f'"{tpu.disks[index][:80]}" is neither the name of a disk nor NAME:{WRITES}'
            yield SettingFinding(path, text, "see: gcloud compute disks list")
        elif disk.name in names[:index]:
            yield SettingFinding(path, f"names {disk.name} twice", "name each disk once")
        elif disk.writable and accelerator and accelerator.hosts > 1:
            text = f"{tpu.type} has {accelerator.hosts} machines, and only one can write to a disk"
            yield SettingFinding(path, text, f"write {disk.name}, which is {READS}")
        elif disk.writable and tpu.strategy != "failover":
            text = "several TPUs are requested at once, and only one can write to a disk"
            yield SettingFinding(path, text, "set tpu.strategy: failover")
    if tpu.disks and len(tpu.zones) > 1:
        text = "a disk is in one zone; in a zone without a disk of that name no TPU is requested"
        yield SettingFinding(
            "tpu.disks", text, "name only their zone, or create them in each zone", level=Level.WARN
        )


RULES = (
    SettingRule(("tpu.reservation", "tpu.zones", "tpu.request", "tpu.spot"), _reservation),
    SettingRule(("tpu.disks", "tpu.type", "tpu.strategy", "tpu.zones"), _disks),
    SettingRule(("tpu.request", "tpu.max_run_duration", "tpu.spot", "tpu.zones", "tpu.type"), _flex_start),
)
