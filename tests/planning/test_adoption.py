"""Which TPU of somebody else fits a deployment."""

from dataclasses import replace

import pytest

from orchestrator.domain.observation import Bucket, ForeignBucket, ForeignNode, Node, NodeState
from orchestrator.planning.adoption import bucket_obstacles, differing_lines, is_adopted, obstacles
from tests.planning.planning_kit import a_spec

ACCOUNT = "1-compute@developer.gserviceaccount.com"
ALL_APIS = "https://www.googleapis.com/auth/cloud-platform"
STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"
NODE = Node("theirs", "europe-west4-b", NodeState.READY, None, spot=True)
FITS = ForeignNode(
    NODE, "v5litepod-8", "v2-alpha-tpuv5-lite", ACCOUNT, (ALL_APIS,), external_ip=True, network="default"
)


def spec(**more):
    """Return the deployment that FITS fits."""
    wanted = {
        "tpu__type": "v5litepod-8",
        "tpu__zones": ["europe-west4-b"],
        "tpu__runtime": "v2-alpha-tpuv5-lite",
    }
    return a_spec(**{**wanted, **more})


def test_a_vm_that_fits_has_neither_obstacle_nor_difference():
    """An empty list of scopes means every API."""
    for scopes in ((ALL_APIS,), (STORAGE,), ()):
        found = replace(FITS, scopes=scopes)
        assert list(obstacles(spec(), found, [])) == []
    assert list(differing_lines(spec(), FITS, ACCOUNT)) == []
    assert not is_adopted(spec(), FITS.node.labels)


@pytest.mark.parametrize(
    ("found", "wanted", "others", "why"),
    [
        (replace(FITS, in_queue="q1"), {}, [], "the queued resource q1"),
        (replace(FITS, node=replace(NODE, state=NodeState.STOPPED)), {}, [], "it is STOPPED"),
        (replace(FITS, node=replace(NODE, state=NodeState.PREEMPTED)), {}, [], "it is PREEMPTED"),
        (replace(FITS, node=replace(NODE, labels={"tpuctl-deployment": "b"})), {}, [], "the deployment b"),
        (FITS, {}, ["demo-tpu-g1"], "has a TPU already: demo-tpu-g1"),
        (FITS, {"tpu__request": "queued"}, [], "through the queue"),
        (FITS, {"job__run_on": "vm"}, [], "runs on the VM"),
        (FITS, {"os_login": True}, [], "os_login"),
        (replace(FITS, scopes=("x/logging.write",)), {}, [], "scopes logging.write"),
        (replace(FITS, scopes=(STORAGE,)), {"job__secrets": {"A": "secret://a"}}, [], "needed " + ALL_APIS),
        (FITS, {"tpu__zones": ["us-central1-a"]}, [], "it is in europe-west4, and the bucket in us-central1"),
    ],
)  # fmt: skip
def test_what_no_line_of_the_file_puts_right(found, wanted, others, why):
    """Each is said by itself."""
    (said,) = obstacles(spec(**wanted), found, others)
    assert why in said


def test_a_label_of_this_deployment_is_no_obstacle():
    """A command that was killed goes on."""
    found = replace(FITS, node=replace(NODE, labels={"tpuctl-deployment": spec().name}))
    assert is_adopted(spec(), found.node.labels)
    assert list(obstacles(spec(), found, [])) == []


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (replace(FITS, type="v5litepod-4"), "tpu.type: v5litepod-4"),
        (replace(FITS, runtime="r"), "tpu.runtime: r"),
        (replace(FITS, node=replace(NODE, spot=False)), "tpu.spot: false"),
        (replace(FITS, external_ip=False), "tpu.external_ip: false"),
        (replace(FITS, network="lab"), "network: lab"),
        (replace(FITS, account="a@b"), "service_account: a@b"),
        (replace(FITS, node=replace(NODE, zone="europe-west4-a")), "tpu.zones: [europe-west4-a, europe-west4-b]"),
    ],
)  # fmt: skip
def test_what_differs_is_a_line_to_write(found, line):
    """As it goes into the file."""
    assert list(differing_lines(spec(), found, ACCOUNT)) == [line]


THEIRS = ForeignBucket(Bucket("theirs", "europe-west4", soft_delete_seconds=604800))


def test_a_bucket_as_the_console_makes_it_fits():
    """Deleted objects are kept for a week there; it is in the region, and it is empty."""
    assert list(bucket_obstacles(spec(), THEIRS, "", "delete")) == []
    assert list(bucket_obstacles(spec(), replace(THEIRS, objects=("a",)), "theirs", "keep")) == []
    # No location of the bucket but the TPU's: a multi-region costs traffic, too.
    (said,) = bucket_obstacles(spec(), replace(THEIRS, bucket=Bucket("theirs", "eu")), "", "keep")
    assert "it is in eu" in said


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"retention": 60}, "for 60 s"), ({"held": True}, "--no-default-event-based-hold"),
        ({"versioning": True}, "--no-versioning"), ({"requester_pays": True}, "--no-requester-pays"),
        ({"public": True}, "it is public"), ({"deletes": True}, "lifecycle"),
        ({"storage_class": "ARCHIVE"}, "ARCHIVE"), ({"own_project": False}, "bucket.adopt: true"),
    ],
)  # fmt: skip
def test_a_bucket_that_loses_data_or_money_does_not_fit(settings, why):
    """Each reason by itself, whatever `down` is to do with it."""
    for at_down in ("keep", "delete"):
        (said,) = bucket_obstacles(spec(), replace(THEIRS, **settings), "", at_down)
        assert why in said


def test_the_file_may_not_ask_for_another_soft_delete():
    """Its settings are its owner's."""
    (said,) = bucket_obstacles(spec(bucket__soft_delete="30d"), THEIRS, "", "keep")
    assert "604800 s" in said
    assert list(bucket_obstacles(spec(bucket__soft_delete="7d"), THEIRS, "", "keep")) == []
