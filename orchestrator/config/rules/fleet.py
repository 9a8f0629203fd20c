"""Rules of the section `fleet`."""

from collections.abc import Iterator

from orchestrator.config.rules.place import NAME_LENGTH
from orchestrator.config.rules.rule import Problem, SettingRule
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import FLEET_COMMAND, FleetSpec, Spec, TensorboardSpec

MOST_NODES = 100
NODE_SUFFIX = "-001"


def _fleet(spec: Spec, _: Catalog) -> Iterator[Problem]:
    if spec.fleet is None:
        return
    if not 1 <= spec.fleet.nodes <= MOST_NODES:
        yield Problem("fleet.nodes", f"{spec.fleet.nodes} is not between 1 and {MOST_NODES}", "for example 8")
    if spec.job.command != FLEET_COMMAND:
        text = "a file with `fleet` has no job of its own"
        yield Problem("job", text, "put it into a file of its own, for: tpuctl fleet submit FILE")
    if len(spec.name) > NAME_LENGTH - len(NODE_SUFFIX):
        text = f"its nodes are called {spec.name[:60]}{NODE_SUFFIX}, which is too long"
        yield Problem("name", text, f"use at most {NAME_LENGTH - len(NODE_SUFFIX)} characters")
    if spec.vm == "none" or spec.vm.spot:
        text = "the queue of a fleet is on its VM, which must not be taken away"
        yield Problem("vm", text, "leave it out, or write spot: false")
    if spec.bucket.adopt or spec.bucket.prefix:
        yield Problem("bucket.adopt", "a fleet has a bucket of its own", "leave adopt and prefix out")
    refused = {
        "tpu.strategy": spec.tpu.strategy != "failover",
        "tpu.disks": bool(spec.tpu.disks),
        "watch.on_vm": spec.watch.on_vm,
        "watch.deadline": spec.watch.deadline is not None,
        "sidecars.tensorboard": isinstance(spec.sidecars.tensorboard, TensorboardSpec),
        "sidecars.jupyter": spec.sidecars.jupyter != "none",
    }
    for key, wrong in refused.items():
        if wrong:
            yield Problem(key, "is not for fleets", "leave it out")


def _size(spec: Spec, _: Catalog) -> Iterator[Problem]:
    if spec.fleet is None:
        return
    if spec.fleet.min_idle is not None and not 0 <= spec.fleet.min_idle <= spec.fleet.nodes:
        text = f"{spec.fleet.min_idle} is not between 0 and fleet.nodes ({spec.fleet.nodes})"
        yield Problem("fleet.min_idle", text, "0 for no TPU while nothing waits; leave it out to keep all")
    if spec.fleet.min_idle is None and spec.fleet.idle != FleetSpec(0).idle:
        text = "has no effect: without fleet.min_idle all nodes are kept"
        yield Problem("fleet.idle", text, "write min_idle: 0 beside it, or leave it out", fatal=False)


RULES = (
    SettingRule(
        ("fleet.nodes", "name", "job", "vm", "bucket.adopt", "bucket.prefix", "tpu", "watch", "sidecars"),
        _fleet,
    ),
    SettingRule(("fleet.nodes", "fleet.min_idle", "fleet.idle"), _size),
)
