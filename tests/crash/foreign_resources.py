"""What other people have made, beside a deployment or for it to adopt, and what must be left of it."""

from dataclasses import replace

from orchestrator.app.down import delete_all, give_back
from orchestrator.domain.names import bucket_name
from orchestrator.domain.record import Record
from orchestrator.engine.blueprint import Blueprint
from tests.crash import commands
from tests.crash.crash_lab import HERE
from tests.crash.oracle import ours
from tests.engine.engine_lab import KEY, PROJECT, ZONE, a_spec

SPEC = a_spec(vm__spot=True)
WITH_THEIR_VM = a_spec(vm__spot=True, vm__name="demo-vm")
IN_FOLDER = a_spec(
    vm__spot=True,
    bucket__name=bucket_name(a_spec(), PROJECT),
    bucket__adopt=True,
    bucket__prefix="team/demo/",
)


def foreign_things(stage):
    """Another deployment's VM, TPU and bucket in the same project and zone."""
    other = a_spec(name="other")
    cloud = stage.open(other)
    blueprint = Blueprint(other, cloud.account, lambda: f"tpuctl:{KEY}")
    cloud.buckets.create(blueprint.new_bucket())
    cloud.vms.create(blueprint.new_vm(Record()))
    cloud.nodes.create(blueprint.new_node(Record(), ZONE, 1))
    stage.wait(10)


def theirs(stage):
    """Somebody has made a TPU by hand; strangers are beside it."""
    foreign_things(stage)
    cloud = stage.open(SPEC)
    new = Blueprint(SPEC, cloud.account, lambda: f"tpuctl:{KEY}").new_node(Record(), ZONE, 1)
    cloud.nodes.create(replace(new, name=commands.THEIRS, labels={"owner": "me"}, metadata={}))
    stage.wait(60)


def adopted(stage):
    """It has become the deployment's own, and trains."""
    theirs(stage)
    commands.adopt(stage, SPEC)
    stage.wait(60)


def their_vm(stage):
    """Somebody has made a VM by hand; strangers are beside it."""
    foreign_things(stage)
    cloud = stage.open(WITH_THEIR_VM)
    new = Blueprint(WITH_THEIR_VM, cloud.account, lambda: f"tpuctl:{KEY}").new_vm(Record())
    cloud.vms.create(replace(new, labels={"owner": "me"}, metadata={}))
    stage.wait(60)


def vm_adopted(stage):
    """It has become the VM of a deployment that trains."""
    their_vm(stage)
    commands.adopt_vm(stage, WITH_THEIR_VM)
    stage.wait(60)


def check_vm_stays(stage, scenario, before):
    """The VM is there as its owner had it, with neither labels nor key of ours; all else is gone."""
    stage.wait(60)
    vms = [v for v in stage.cloud.kernel.state.instances.values() if v.name.startswith("demo")]
    assert [(v.name, v.labels, v.metadata) for v in vms] == [
        ("demo-vm", {"owner": "me"}, {"enable-guest-attributes": "TRUE"})
    ]
    assert [n for n in stage.nodes() if n.startswith("demo")] == []


def check_vm_theirs_or_none(stage, scenario, before):
    """Nothing carries our label; the VM is there unless it had become ours before."""
    stage.wait(60)
    vms = [v for v in stage.cloud.kernel.state.instances.values() if v.name.startswith("demo")]
    assert all(v.labels == {"owner": "me"} for v in vms), vms
    assert [n for n in stage.nodes() if n.startswith("demo")] == []


def their_bucket(stage):
    """Somebody has made a bucket by hand, with an object in it."""
    foreign_things(stage)
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    body = {"name": stage.bucket, "location": "EUROPE-WEST4", "labels": {"owner": "me"}, **uniform}
    stage.storage.buckets.create(PROJECT, body)
    stage.put("theirs.txt", b"precious")


def bucket_adopted(stage):
    """It has become the deployment's own, which trains."""
    their_bucket(stage)
    commands.adopt_bucket(stage, SPEC)
    stage.wait(60)


def folder_used(stage):
    """A deployment keeps its data in a folder of that bucket."""
    their_bucket(stage)
    with commands.process(stage, IN_FOLDER, HERE) as made:
        made.want()
        made.run(seconds=120)


def bucket_back(stage, spec, place=HERE):
    """`down --delete-data`, whose second one finds a bucket that is not ours any more."""
    remaining = commands.down(stage, spec, place, data=True)
    assert {one.kind for one in remaining} <= {"bucket"}, f"down says that {remaining} is left"


def machines_then_bucket_back(stage, spec, place=HERE):
    """`down`, and then the same with --delete-data."""
    machines_gone(stage, spec, place)
    bucket_back(stage, spec, place)


def check_bucket_back(stage, scenario, before):
    """The bucket is as its owner had it, with his labels and rights alone; his object is there."""
    stage.wait(60)
    assert ours(stage) == []
    bucket = stage.storage.buckets.get(stage.bucket, "storage.buckets.get")
    assert bucket.fields["labels"] == {"owner": "me"}
    assert stage.storage.buckets.policy(stage.bucket)["bindings"] == []
    assert "theirs.txt" in stage.objects()


def check_folder_gone(stage, scenario, before):
    """Nothing of ours is left in the shared bucket, and what is beside our folder is untouched."""
    stage.wait(60)
    assert ours(stage) == []
    assert "theirs.txt" in stage.objects()
    assert stage.objects(IN_FOLDER.bucket.prefix) == []


def given_back(stage, spec, place=HERE):
    """`down`, which keeps what was adopted."""
    with commands.process(stage, spec, place, forgiving=True) as made:
        deletion = made.deletion()
        give_back(made.deployment, deletion, deletion.adopted())
        remaining = delete_all(deletion)
    assert remaining == [], f"down says that {remaining} is left"


def check_stays(stage, scenario, before):
    """The TPU is there as its owner had it, with his labels alone; all else is gone."""
    stage.wait(60)
    nodes = [n for n in stage.cloud.kernel.state.nodes.values() if n.name.startswith("demo")]
    assert [(n.name, n.body["labels"]) for n in nodes] == [(commands.THEIRS, {"owner": "me"})]
    assert [v for v in stage.vms() if v.startswith("demo")] == []


def check_theirs_or_none(stage, scenario, before):
    """Nothing carries our label; the TPU is there unless it had become ours before."""
    stage.wait(60)
    nodes = [n for n in stage.cloud.kernel.state.nodes.values() if n.name.startswith("demo")]
    assert all(n.body["labels"] == {"owner": "me"} for n in nodes), nodes
    assert [v for v in stage.vms() if v.startswith("demo")] == []


def machines_gone(stage, spec, place=HERE):
    """`down`."""
    remaining = commands.down(stage, spec, place)
    assert remaining == [], f"down says that {remaining} is left"
