"""What other people have made, beside a deployment or for it to adopt, and what must be left of it."""

from dataclasses import replace

from orchestrator.app.down import delete_all, give_back
from orchestrator.domain.names import bucket_name
from orchestrator.domain.record import Record
from orchestrator.engine.blueprint import Blueprint
from tests.crash import commands
from tests.crash.crash_lab import HERE
from tests.crash.oracle import ours
from tests.engine.engine_lab import KEY, PROJECT, ZONE, one_zone_spec

SPEC = one_zone_spec(vm__spot=True)
WITH_THEIR_VM = one_zone_spec(vm__spot=True, vm__name="demo-vm")
IN_FOLDER = one_zone_spec(
    vm__spot=True,
    bucket__name=bucket_name(one_zone_spec(), PROJECT),
    bucket__adopt=True,
    bucket__prefix="team/demo/",
)


def foreign_things(lab):
    """Another deployment's VM, TPU and bucket in the same project and zone."""
    other = one_zone_spec(name="other")
    cloud = lab.open(other)
    blueprint = Blueprint(other, cloud.account, lambda: f"tpuctl:{KEY}")
    cloud.buckets.create(blueprint.new_bucket())
    cloud.vms.create(blueprint.new_vm(Record()))
    cloud.nodes.create(blueprint.new_node(Record(), ZONE, 1))
    lab.wait(10)


def theirs(lab):
    """Somebody has made a TPU by hand; strangers are beside it."""
    foreign_things(lab)
    cloud = lab.open(SPEC)
    new = Blueprint(SPEC, cloud.account, lambda: f"tpuctl:{KEY}").new_node(Record(), ZONE, 1)
    cloud.nodes.create(replace(new, name=commands.THEIRS, labels={"owner": "me"}, metadata={}))
    lab.wait(60)


def adopted(lab):
    """It has become the deployment's own, and trains."""
    theirs(lab)
    commands.adopt(lab, SPEC)
    lab.wait(60)


def their_vm(lab):
    """Somebody has made a VM by hand; strangers are beside it."""
    foreign_things(lab)
    cloud = lab.open(WITH_THEIR_VM)
    new = Blueprint(WITH_THEIR_VM, cloud.account, lambda: f"tpuctl:{KEY}").new_vm(Record())
    cloud.vms.create(replace(new, labels={"owner": "me"}, metadata={}))
    lab.wait(60)


def vm_adopted(lab):
    """It has become the VM of a deployment that trains."""
    their_vm(lab)
    commands.adopt_vm(lab, WITH_THEIR_VM)
    lab.wait(60)


def check_vm_stays(lab, scenario, before):
    """The VM is there as its owner had it, with neither labels nor key of ours; all else is gone."""
    lab.wait(60)
    vms = [v for v in lab.cloud.kernel.state.instances.values() if v.name.startswith("demo")]
    assert [(v.name, v.labels, v.metadata) for v in vms] == [
        ("demo-vm", {"owner": "me"}, {"enable-guest-attributes": "TRUE"})
    ]
    assert [n for n in lab.nodes() if n.startswith("demo")] == []


def check_vm_theirs_or_none(lab, scenario, before):
    """Nothing carries our label; the VM is there unless it had become ours before."""
    lab.wait(60)
    vms = [v for v in lab.cloud.kernel.state.instances.values() if v.name.startswith("demo")]
    assert all(v.labels == {"owner": "me"} for v in vms), vms
    assert [n for n in lab.nodes() if n.startswith("demo")] == []


def their_bucket(lab):
    """Somebody has made a bucket by hand, with an object in it."""
    foreign_things(lab)
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    body = {"name": lab.bucket, "location": "EUROPE-WEST4", "labels": {"owner": "me"}, **uniform}
    lab.storage.buckets.create(PROJECT, body)
    lab.put("theirs.txt", b"precious")


def bucket_adopted(lab):
    """It has become the deployment's own, which trains."""
    their_bucket(lab)
    commands.adopt_bucket(lab, SPEC)
    lab.wait(60)


def folder_used(lab):
    """A deployment keeps its data in a folder of that bucket."""
    their_bucket(lab)
    with commands.process(lab, IN_FOLDER, HERE) as made:
        made.want()
        made.run(seconds=120)


def bucket_back(lab, spec, place=HERE):
    """`down --delete-data`, whose second one finds a bucket that is not ours any more."""
    remaining = commands.down(lab, spec, place, data=True)
    assert {one.kind for one in remaining} <= {"bucket"}, f"down says that {remaining} is left"


def machines_then_bucket_back(lab, spec, place=HERE):
    """`down`, and then the same with --delete-data."""
    machines_gone(lab, spec, place)
    bucket_back(lab, spec, place)


def check_bucket_back(lab, scenario, before):
    """The bucket is as its owner had it, with his labels and rights alone; his object is there."""
    lab.wait(60)
    assert ours(lab) == []
    bucket = lab.storage.buckets.get(lab.bucket, "storage.buckets.get")
    assert bucket.fields["labels"] == {"owner": "me"}
    assert lab.storage.buckets.policy(lab.bucket)["bindings"] == []
    assert "theirs.txt" in lab.objects()


def check_folder_gone(lab, scenario, before):
    """Nothing of ours is left in the shared bucket, and what is beside our folder is untouched."""
    lab.wait(60)
    assert ours(lab) == []
    assert "theirs.txt" in lab.objects()
    assert lab.objects(IN_FOLDER.bucket.prefix) == []


def given_back(lab, spec, place=HERE):
    """`down`, which keeps what was adopted."""
    with commands.process(lab, spec, place, forgiving=True) as made:
        deletion = made.deletion()
        give_back(made.deployment, deletion, deletion.adopted())
        remaining = delete_all(deletion)
    assert remaining == [], f"down says that {remaining} is left"


def check_stays(lab, scenario, before):
    """The TPU is there as its owner had it, with his labels alone; all else is gone."""
    lab.wait(60)
    nodes = [n for n in lab.cloud.kernel.state.nodes.values() if n.name.startswith("demo")]
    assert [(n.name, n.body["labels"]) for n in nodes] == [(commands.THEIRS, {"owner": "me"})]
    assert [v for v in lab.vms() if v.startswith("demo")] == []


def check_theirs_or_none(lab, scenario, before):
    """Nothing carries our label; the TPU is there unless it had become ours before."""
    lab.wait(60)
    nodes = [n for n in lab.cloud.kernel.state.nodes.values() if n.name.startswith("demo")]
    assert all(n.body["labels"] == {"owner": "me"} for n in nodes), nodes
    assert [v for v in lab.vms() if v.startswith("demo")] == []


def machines_gone(lab, spec, place=HERE):
    """`down`."""
    remaining = commands.down(lab, spec, place)
    assert remaining == [], f"down says that {remaining} is left"
