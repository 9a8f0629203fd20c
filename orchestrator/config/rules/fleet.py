"""Define the rules for the section `fleet`."""

import re
from collections.abc import Iterator

from orchestrator.config.rules.names_and_zones import NAME_LENGTH
from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import FLEET_COMMAND, FleetSpec, Spec, TensorboardSpec
from orchestrator.planning.fleet.users import NO_LOGINS, NORMAL, below

MAX_NODES = 100
NODE_SUFFIX = "-001"
MAX_PRIORITIES = 8
"""Most priorities: their distance in Slurm's single number must exceed all other factors (slurm.sh)."""
LOGIN = re.compile(r"[a-z0-9][-a-z0-9._+@]{0,62}")
"""What Slurm accepts as the name of an account, which has no capital letters."""
PRIORITY = re.compile(r"[a-z][-a-z0-9]{0,30}")


def _fleet(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.fleet is None:
        return
    if not 1 <= spec.fleet.nodes <= MAX_NODES:
        yield SettingFinding(
            "fleet.nodes", f"{spec.fleet.nodes} is not between 1 and {MAX_NODES}", "for example 8"
        )
    if spec.job.command != FLEET_COMMAND:
        text = "a file with `fleet` has no job of its own"
        yield SettingFinding("job", text, "put it into a file of its own, for: tpuctl fleet submit FILE")
    if len(spec.name) > NAME_LENGTH - len(NODE_SUFFIX):
        text = f"its nodes are called {spec.name[:60]}{NODE_SUFFIX}, which is too long"
        yield SettingFinding("name", text, f"use at most {NAME_LENGTH - len(NODE_SUFFIX)} characters")
    if spec.vm == "none" or spec.vm.spot:
        text = "the queue of a fleet is on its VM, which must not be taken away"
        yield SettingFinding("vm", text, "leave it out, or write spot: false")
    if spec.bucket.adopt or spec.bucket.prefix:
        yield SettingFinding("bucket.adopt", "a fleet has a bucket of its own", "leave adopt and prefix out")
    refused = {
        "tpu.strategy": spec.tpu.strategy != "failover",
        "tpu.disks": bool(spec.tpu.disks),
        "watch.deadline": spec.watch.deadline is not None,
        "sidecars.tensorboard": isinstance(spec.sidecars.tensorboard, TensorboardSpec),
        "sidecars.jupyter": spec.sidecars.jupyter != "none",
    }
    for key, wrong in refused.items():
        if wrong:
            yield SettingFinding(key, "is not for fleets", "leave it out")


def _size(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    if spec.fleet is None:
        return
    if spec.fleet.min_idle is not None and not 0 <= spec.fleet.min_idle <= spec.fleet.nodes:
        text = f"{spec.fleet.min_idle} is not between 0 and fleet.nodes ({spec.fleet.nodes})"
        yield SettingFinding(
            "fleet.min_idle", text, "0 for no TPU while nothing waits; leave it out to keep all"
        )
    if spec.fleet.min_idle is not None and spec.watch.on_vm:
        text = "the loop on the VM keeps the nodes that there are: only a watch on your computer follows the queue"
        yield SettingFinding("fleet.min_idle", text, "leave it out, or leave out watch.on_vm")
    if spec.fleet.min_idle is None and spec.fleet.idle != FleetSpec(0).idle:
        text = "has no effect: without fleet.min_idle all nodes are kept"
        yield SettingFinding(
            "fleet.idle", text, "write min_idle: 0 beside it, or leave it out", level=Level.WARN
        )


def _users(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for login, user in (spec.fleet.users if spec.fleet else {}).items():
        path = at("fleet.users", login)
        if not LOGIN.fullmatch(login) or login in NO_LOGINS:
            yield SettingFinding(
                path, f"{login!r} is not a login", "write the account that gcloud shows, in small letters"
            )
        if not 1 <= user.share <= 1000:
            yield SettingFinding((*path, "share"), f"{user.share} is not between 1 and 1000", "for example 1")
        if user.nodes is not None and user.nodes < 1:
            yield SettingFinding(
                (*path, "nodes"), f"{user.nodes} is less than 1", "leave it out for no limit"
            )
        if user.budget_usd is not None and user.budget_usd < 0:
            yield SettingFinding(
                (*path, "budget_usd"), f"{user.budget_usd:g} is less than 0", "for example 200"
            )


def _priorities(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    given = spec.fleet.priorities if spec.fleet else {}
    if len(given) > MAX_PRIORITIES:
        yield SettingFinding(
            "fleet.priorities", f"{len(given)} are too many", f"use at most {MAX_PRIORITIES}"
        )
    for name, one in given.items():
        path = at("fleet.priorities", name)
        if not PRIORITY.fullmatch(name):
            yield SettingFinding(path, f"{name!r} is not a name", "use small letters, digits and '-'")
        if one.over is not None and one.over not in {*given, NORMAL}:
            yield SettingFinding(
                (*path, "over"), f"there is no priority {one.over!r}", f"one of {', '.join(given)}"
            )
        elif name in below(given, name):
            yield SettingFinding(
                (*path, "over"), f"{name} would be over itself", "let one of them be over none"
            )
        if one.preempts and one.over is None:
            yield SettingFinding(
                (*path, "preempts"), "it is over no other priority", "write over, or leave it out"
            )


RULES = (
    SettingRule(("fleet.users",), _users),
    SettingRule(("fleet.priorities",), _priorities),
    SettingRule(
        ("fleet.nodes", "name", "job", "vm", "bucket.adopt", "bucket.prefix", "tpu", "watch", "sidecars"),
        _fleet,
    ),
    SettingRule(("fleet.nodes", "fleet.min_idle", "fleet.idle", "watch.on_vm"), _size),
)
