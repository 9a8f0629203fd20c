"""What is going on when the process is killed: the commands, with the state in which each begins."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name
from orchestrator.contract.bucket.object_names import LEASE, RECORD
from orchestrator.contract.bucket.uncommitted_manifest import (
    RescueMoment,
    UncommittedFile,
    UncommittedManifest,
    folder_name,
)
from orchestrator.contract.bucket.uncommitted_manifest import manifest_name as uncommitted_name
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.plan import Outcome
from orchestrator.errors import AuthError, CapacityError, QuotaError, UncommittedError
from tests.crash import commands
from tests.crash.crash_lab import HERE
from tests.crash.foreign_resources import (
    IN_FOLDER,
    SPEC,
    WITH_THEIR_VM,
    adopted,
    bucket_adopted,
    bucket_back,
    check_bucket_back,
    check_folder_gone,
    check_stays,
    check_theirs_or_none,
    check_vm_stays,
    check_vm_theirs_or_none,
    folder_used,
    foreign_things,
    given_back,
    machines_gone,
    machines_then_bucket_back,
    their_bucket,
    their_vm,
    theirs,
    vm_adopted,
)
from tests.crash.oracle import check_done, check_gone, check_over, check_running
from tests.engine.engine_lab import QUOTA, ZONE, one_zone_spec

STEP = 20
"""The step of the checkpoint that a running job has committed."""
UNCOMMITTED_FILE = f"{folder_name(1, 0)}checkpoints/ckpt.pt"
QUEUED = one_zone_spec(vm__spot=True, tpu__request="queued")
RACE = one_zone_spec(
    vm__spot=True,
    tpu__type="v2-8",
    tpu__runtime="tpu-ubuntu2204-base",
    tpu__strategy="race",
    tpu__zones=["us-central1-b", "us-central1-c", "us-central1-f"],
)


PAIR = replace(RACE, tpu=replace(RACE.tpu, strategy="failover", zones=RACE.tpu.zones[:2]))


@dataclass(frozen=True)
class NextTry:
    """A command after a kill, and what must hold at its end."""

    name: str
    go: Callable
    check: Callable


@dataclass(frozen=True)
class CrashScenario:
    """
    Hold one command: the state it begins in, the command, and the ways to go on after a kill.

    *nodes* is how many nodes of ours are ever paid for, whatever is killed where. *again* is
    who looks once more at the end, *journal* says that somebody may have to read the journal.
    *expires* says that any later command of the computer ends it once it has expired: not where the record
    cannot be read there, which is said then. In a *relay* a TPU works on while the next one is made. The first of
    the ways is the same command again.
    """

    name: str
    prepare: Callable
    run: Callable
    ways: tuple[NextTry, ...]
    nodes: int = 1
    spec: Any = SPEC
    again: Callable = commands.up
    journal: bool = False
    expires: bool = True
    race: bool = False
    relay: bool = False
    settings: dict = field(default_factory=dict)


def running(lab, spec=SPEC):
    """A deployment that trains, with a checkpoint; somebody else's machines are beside it."""
    foreign_things(lab)
    commands.up(lab, spec)
    lab.wait(300)
    files = (StoredFile("weights", 7, hashlib.sha256(b"weights").hexdigest()),)
    lab.put(file_name(STEP, 1, 0, "weights"), b"weights")
    manifest = Manifest(STEP, 1, 0, 1, 1, f"step-{STEP}", files, lab.clock.now())
    lab.put(manifest_name(STEP, 1, 0), manifest.text().encode())
    lab.wait(60)


def preempted(lab):
    """TPU and VM are taken away together."""
    running(lab)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.cloud.preempt("demo-vm", notice=False)


def messages(lab):
    """The TPU has had its notice, and saves; there is another zone."""
    running(lab, PAIR)
    lab.cloud.preempt("demo-tpu-g1", notice=True)
    lab.machines.report(phase="stopping", notice=True, preempted=True)


def suspended(lab):
    """The TPU that the queue has made is taken away; its queued resource stays, and holds quota."""
    running(lab, QUEUED)
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.wait(5)


def in_queue(lab):
    """A request waits in the queue of a zone without capacity; its controller was killed."""
    foreign_things(lab)
    lab.cloud.fail_next("tpu.queuedResources.create", ["no-capacity"])
    with commands.process(lab, QUEUED, HERE) as made:
        made.want()
        made.run(seconds=60)


def reported(lab):
    """The job has reported that it is done."""
    running(lab)
    lab.machines.report(phase="done")


def uncommitted(lab):
    """The job has ended with status 0, nothing was committed, and its files are in unclaimed/."""
    foreign_things(lab)
    commands.up(lab, SPEC)
    lab.wait(300)
    retained = UncommittedFile(
        "checkpoints/ckpt.pt", 5, hashlib.sha256(b"model").hexdigest(), UNCOMMITTED_FILE
    )
    lab.put(UNCOMMITTED_FILE, b"model")
    body = UncommittedManifest(
        1, 0, 1, 1, "b", "s", "auto", RescueMoment.UNCOMMITTED, True, (retained,), (), lab.clock.now()
    )
    lab.put(uncommitted_name(1, 0), body.text().encode())
    lab.machines.report(
        phase="uncommitted",
        uncommitted="ckpt.pt",
        uncommitted_files=1,
        uncommitted_bytes=5,
        uncommitted_complete=True,
    )


def older(**changes):
    """Return what prepares a deployment whose record and lease an older tpuctl has written."""

    def prepare(lab):
        running(lab)
        lab.wait(600)
        path = lab.folder / HERE / "record.json"
        data = as_older(json.loads(path.read_bytes()), **changes)
        path.write_bytes(data)
        lab.put(RECORD, data)
        lab.put(LEASE, json.dumps({"id": "old", "who": "me", "command": "watch", "since": 0.0}).encode())
        lab.wait(300)

    return prepare


LATER = (
    "fence",
    "expires_at",
    "bucket_ready",
    "job",
    "settings_due",
    "sidecars",
    "shape",
    "unwanted",
    "queued",
    "round",
    "claimed",
    "rivals",
    "highest",
    "type",
    "places",
)
"""Fields that records of earlier versions do not have."""


def as_older(body, *, checksummed):
    """Return a record as an earlier version wrote it; the first ones had no seal."""
    known = {key: value for key, value in body["history"].items() if key not in LATER}
    known["agent"], known["uploaded"] = "0" * 64, f"{known['bundle']}:{'0' * 64}"
    old = {
        "schema": body["schema"],
        "deployment": body["deployment"],
        "writer": "",
        "history": known,
    }
    return json.dumps(with_checksum(old) if checksummed else old, sort_keys=True).encode()


def without_answer(command, error):
    """Return a command that is refused."""

    def refused(lab, spec, place=HERE):
        try:
            command(lab, spec, place)
        except error:
            return
        raise AssertionError(f"it was not refused with {error.__name__}")

    return refused


def mended(lab, spec, place=HERE):
    """The cause is gone, and the command is given again."""
    lab.change(stockouts=frozenset(), quotas={}, denied_permissions=frozenset())
    try:
        commands.up(lab, spec, place)
    except CapacityError:
        # What was asked for before the kill may be refused only now; that says nothing about the next ask.
        commands.up(lab, spec, place)


def all_gone(lab, spec, place=HERE):
    """`down --delete-data`."""
    remaining = commands.down(lab, spec, place, data=True)
    assert remaining == [], f"down says that {remaining} is left"


UP = NextTry("up again", commands.up, check_running)
WATCH = NextTry("watch again", commands.watch, check_running)
DOWN = NextTry("down", machines_gone, check_gone)
DOWN_DATA = NextTry("down --delete-data", all_gone, check_gone)


def watch_to_uncommitted(lab, spec, place=HERE):
    """`tpuctl watch`, which says at its end that nothing was committed."""
    with suppress(UncommittedError):
        commands.watch(lab, spec, place)


def check_uncommitted(lab, scenario, before):
    """It is over and not done, nothing is paid for but a stopped VM's disk, and what was trained is there."""
    check_over(lab, scenario, before, Outcome.UNCOMMITTED)
    assert {UNCOMMITTED_FILE, uncommitted_name(1, 0)} <= set(lab.objects()), "what was trained is gone"


UNCOMMITTED = NextTry("watch again", watch_to_uncommitted, check_uncommitted)
DONE = NextTry("watch again", commands.watch, check_done)
MENDED = NextTry("up, mended", mended, check_running)
OTHER_JOB = replace(SPEC, job=replace(SPEC.job, env={"EPOCHS": "3"}))
LARGER = replace(SPEC, tpu=replace(SPEC.tpu, type="v5litepod-16"))


def refused(name, error, **settings):
    """Return the scenario of an `up` whose TPU is refused."""
    again = NextTry("up, still refused, then mended", without_answer(commands.up, error), check_mended)
    return CrashScenario(
        f"up-failed, {name}", foreign_things, without_answer(commands.up, error), (again, MENDED, DOWN_DATA),
        settings=settings,
    )  # fmt: skip


def check_mended(lab, scenario, before):
    """When the cause is gone, the deployment comes up."""
    mended(lab, scenario.spec)
    check_running(lab, scenario, before)


SCENARIOS = (
    CrashScenario("up", foreign_things, commands.up, (UP, DOWN_DATA, DOWN)),
    CrashScenario("watch-preempt", preempted, commands.watch, (WATCH, UP, DOWN_DATA), nodes=2),
    CrashScenario("resize", running, commands.up, (UP, DOWN_DATA), nodes=2, spec=LARGER),
    CrashScenario("down", running, machines_gone, (DOWN, DOWN_DATA)),
    CrashScenario("down --delete-data", running, all_gone, (DOWN_DATA,)),
    refused("no capacity", CapacityError, stockouts=frozenset({ZONE})),
    refused("no quota", QuotaError, quotas={(QUOTA, ZONE): 0}),
    refused("no permission", AuthError, denied_permissions=frozenset({"tpu.nodes.create"})),
    CrashScenario("upgrade", older(checksummed=True), commands.up, (UP, WATCH, DOWN_DATA)),
    CrashScenario(
        "upgrade, first records",
        older(checksummed=False),
        commands.up,
        (UP, DOWN_DATA),
        journal=True,
        expires=False,
    ),
    CrashScenario("done", reported, commands.watch, (DONE, DOWN_DATA), again=commands.watch),
    CrashScenario(
        "uncommitted", uncommitted, watch_to_uncommitted, (UNCOMMITTED, DOWN), again=watch_to_uncommitted
    ),
    CrashScenario("queued", foreign_things, commands.up, (UP, DOWN_DATA, DOWN), spec=QUEUED),
    CrashScenario(
        "queued, preempted", suspended, commands.watch, (WATCH, UP, DOWN_DATA), nodes=2, spec=QUEUED
    ),
    CrashScenario("queued, down", in_queue, machines_gone, (DOWN, DOWN_DATA), spec=QUEUED),
    CrashScenario("race", foreign_things, commands.up, (UP, DOWN_DATA, DOWN), nodes=3, spec=RACE, race=True),
    CrashScenario("notice", messages, commands.watch, (WATCH, UP, DOWN_DATA), nodes=2, spec=PAIR, relay=True),
    CrashScenario(
        "adopt",
        theirs,
        commands.adopt,
        (
            NextTry("adopt again", commands.adopt, check_running),
            NextTry("down", machines_gone, check_theirs_or_none),
        ),
        expires=False,
    ),
    CrashScenario(
        "down, adopted kept",
        adopted,
        given_back,
        (
            NextTry("down again", given_back, check_stays),
            NextTry("down, all", machines_gone, check_theirs_or_none),
        ),
        expires=False,
    ),
    CrashScenario(
        "adopt VM",
        their_vm,
        commands.adopt_vm,
        (
            NextTry("adopt again", commands.adopt_vm, check_running),
            NextTry("down", given_back, check_vm_stays),
        ),
        spec=WITH_THEIR_VM,
        again=commands.adopt_vm,
        expires=False,
    ),
    CrashScenario(
        "down, adopted VM kept",
        vm_adopted,
        given_back,
        (
            NextTry("down again", given_back, check_vm_stays),
            NextTry("down, all", machines_gone, check_vm_theirs_or_none),
        ),
        spec=WITH_THEIR_VM,
        expires=False,
    ),
    CrashScenario(
        "adopt bucket",
        their_bucket,
        commands.adopt_bucket,
        (NextTry("adopt again", commands.adopt_bucket, check_running),),
        expires=False,
    ),
    CrashScenario(
        "down --delete-data, adopted bucket",
        bucket_adopted,
        bucket_back,
        (
            NextTry("down again", bucket_back, check_bucket_back),
            NextTry("down, then down again", machines_then_bucket_back, check_bucket_back),
        ),
        expires=False,
    ),
    CrashScenario(
        "down --delete-data, folder of a bucket",
        folder_used,
        all_gone,
        (NextTry("down again", all_gone, check_folder_gone),),
        spec=IN_FOLDER,
        expires=False,
    ),
    CrashScenario("new settings", running, commands.up, (UP, DOWN), spec=OTHER_JOB),
)
