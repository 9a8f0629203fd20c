"""What `plan` shows is what `up` does: call by call, for random deployment files on a cloud that nobody changes."""

import os
from collections import Counter
from functools import cache
from random import Random

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.names import region_of
from tests.kit.cloud import OWN_NOTES, PROJECT, VirtualCloud
from tests.kit.figures import record_figures
from tests.kit.user import User

FILES = int(os.environ.get("TPUCTL_PLANS", "10"))
MAX_HOSTS = 8
CALLS = {
    ("bucket", "create"): "storage.buckets.insert",
    ("vm", "create"): "compute.instances.insert",
    ("tpu", "create"): "tpu.nodes.create",
    ("bundle", "create"): "upload of the code",
    ("job", "create"): "start of the job",
}
GRANT = "storage.buckets.setIamPolicy"
FORMATS = (
    ("marker", "local"), ("marker", "/mnt/saves"), ("orbax", "bucket"), ("hf", "local"), ("fairseq", "local"),
    ("tf", "bucket"), ("tf", "local"), ("keras", "local"), ("torch", "local"),
)  # fmt: skip


@cache
def slices():
    """Return (type, zones of one region) for every slice that is not too wide to simulate quickly."""
    catalog = load_catalog()
    found = set()
    for kind in catalog.served():
        zones = catalog.zones_of(kind) if catalog.accelerator(kind).hosts <= MAX_HOSTS else ()
        for region in {region_of(zone) for zone in zones}:
            found.add((kind, tuple(z for z in zones if region_of(z) == region)))
    return sorted(found)


def drawn(random):
    """Return a deployment file's content; some of them are not valid, and are drawn again."""
    kind, zones = random.choice(slices())
    chosen = random.sample(zones, random.randint(1, len(zones)))
    layout, place = random.choice(FORMATS)
    file = {
        "name": random.choice(["a", "demo", "roberta-ja", "x9-" + "y" * 30]),
        "tpu__type": kind,
        "tpu__zones": chosen,
        "tpu__spot": random.random() < 0.7,
        "tpu__external_ip": random.random() < 0.8,
        "job__run_on": random.choice(["tpu", "tpu", "tpu", "vm"]),
        "job__checkpoint": {"format": layout, "dir": place, "keep": random.randint(2, 5)},
        "job__setup": random.choice(["", "pip install x"]),
        "job__env": random.choice([{}, {"A": "it's", "B": "$HOME `x` 中"}]),
        "job__failures": random.randint(1, 9),
        "watch__poll": random.choice(["5s", "15s", "2m"]),
        "watch__ttl": random.choice(["3h", "7d"]),
        "vm": random.choice(["none", {}, {"machine_type": "e2-medium", "spot": True}, {"disk_gb": 20}]),
    }
    if random.random() < 0.3:
        file["bucket__name"] = f"bucket-{random.randrange(10**9)}"
        file["bucket__adopt"] = random.random() < 0.5
    if random.random() < 0.2:
        file["bucket__location"] = region_of(zones[0])
    if random.random() < 0.3:
        file["service_account"] = f"trainer@{PROJECT}.iam.gserviceaccount.com"
    if random.random() < 0.3:
        file["watch__budget_usd"] = random.choice([200, 4000.5])
    if random.random() < 0.3 and file["vm"] != "none":
        file["watch__on_vm"] = True
    if random.random() < 0.3:
        on = "tpu" if file["vm"] == "none" else random.choice(["vm", "tpu"])
        file[f"sidecars__{random.choice(['tensorboard', 'jupyter'])}"] = {"on": on}
    return file


def planned(changes):
    """Return the calls that a plan announces, each with the name of what it is about."""
    calls = Counter()
    for change in changes:
        calls[CALLS[change["kind"], change["verb"]], change["name"]] += 1
        if "grant" in change["details"]:
            calls[GRANT, change["name"]] += 1
    return calls


def made(cloud, deployment):
    """Return the calls that were made; the code goes up in two objects, bundle and agent, uv beside them."""
    calls, uploads = Counter(), []
    for method, name in cloud.mutations():
        if name.startswith("bundles/uv-") or (method, name) == ("storage.objects.insert", cloud.buckets()[0]):
            continue  # a large file goes up in parts, by a session that is named after the bucket
        if name.startswith("bundles/"):
            uploads.append(name.removeprefix("bundles/"))
        else:
            calls[method, name] += 1
    assert len(uploads) == len(set(uploads))
    agents = [name for name in uploads if name.startswith("agent-")]
    for name in set(uploads) - set(agents):
        calls["upload of the code", name[:12]] += 1
    assert len(agents) == len(uploads) - len(agents)
    starts = {worker.incarnation for worker in cloud.machines.workers.values() if worker.running}
    assert set(cloud.machines.starts.values()) <= {1}
    calls.update(("start of the job", deployment) for _ in starts)
    return calls


def adopted(cloud, file):
    """Let the bucket be there that the file wants to adopt."""
    if file.get("bucket__adopt"):
        where = {"name": file["bucket__name"], "location": region_of(file["tpu__zones"][0])}
        cloud.storage.buckets.create(PROJECT, where)


def test_up_makes_the_calls_of_the_plan_and_the_second_up_none(tmp_path):
    """
    The rule: each call that makes, changes or deletes something of the cloud is in the plan, a grant too.

    What tpuctl remembers for itself in its own bucket (record, journal, lease, events) is left out of the
    plan. TPUCTL_PLANS says how many files are tried.
    """
    observed, refused = Counter(), 0
    random = Random(9)
    while observed["files"] < FILES:
        file = drawn(random)
        folder = tmp_path / str(observed["files"] + refused)
        folder.mkdir()
        with VirtualCloud(folder).open() as cloud:
            user = User(cloud, **file)
            adopted(cloud, file)
            plan = user.run("plan", "--json")
            if plan.code == 2:
                refused += 1
                continue
            try:
                assert plan.code == 0, plan.out + plan.err
                changes = honest(cloud, user, plan.document["changes"])
            except AssertionError as error:
                error.add_note(f"the file: {user.file}")
                raise
            observed.update(files=1, calls=changes)
    record_figures(
        "plan", "Honest plans",
        "The calls of `up` are those of `plan`, and a second `up` makes none; TPUCTL_PLANS sets the number.",
        {"deployment files": observed["files"], "calls compared": observed["calls"]},
    )  # fmt: skip


def honest(cloud, user, changes):
    """Bring the deployment up, compare, bring it up again; return how many calls were compared."""
    user.up()
    calls = made(cloud, user.deployment)
    assert calls == planned(changes)
    refused = [call for call in cloud.log if call.status >= 400]
    assert [call for call in refused if not call.name.startswith(OWN_NOTES)] == []
    again = user.up()
    assert made(cloud, user.deployment) == calls
    assert "no changes" in again.err
    return calls.total()


@pytest.mark.parametrize("kind", ["bucket", "vm", "tpu", "bundle", "job"])
def test_a_plan_that_leaves_something_out_is_noticed(tmp_path, kind):
    """The comparison finds something: without any one of its changes a plan is not honest."""
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud, vm={})
        changes = user.run("plan", "--json").document["changes"]
        shorter = [change for change in changes if change["kind"] != kind]
        assert len(shorter) == len(changes) - 1
        with pytest.raises(AssertionError):
            honest(cloud, user, shorter)
