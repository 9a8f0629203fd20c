"""The local cloud as a whole: time, state on disk, addresses, threads."""

import pickle
import re
import threading

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.emulator.state.kernel import AddressPool
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, SPOT_NODE, UUID, VMS, a_lab, node_body, vm_body

HOUR = 3600.0


def test_equal_seeds_give_equal_clouds():
    """Two clouds with one seed and one history answer byte for byte the same; another seed does not."""

    def record(seed):
        lab = a_lab(seed=seed)
        return [lab.node(**SPOT_NODE), lab.vm(), lab.ok("GET", NODES)]

    assert record(7) == record(7)
    assert record(7) != record(8)


def test_the_cloud_says_when_it_has_something_to_do():
    """next_due is the earliest planned event, or None."""
    lab = a_lab()
    assert lab.cloud.next_due() is None
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    assert lab.cloud.next_due() == pytest.approx(lab.clock.now() + 1.5)
    lab.after(2)
    assert lab.cloud.next_due() is None


def test_a_long_sleep_replays_events_at_their_own_times():
    """After a jump of an hour the operation shows when it really ended, and so does the bill."""
    lab = a_lab()
    start = lab.clock.now()
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    lab.after(HOUR)
    (line,) = lab.cloud.bill()
    assert line.seconds == pytest.approx(HOUR - 1.5)
    assert start + HOUR == lab.clock.now()


def test_the_version_grows_with_each_change_and_not_with_reads():
    """The daemon can decide whether to write the state."""
    lab = a_lab()
    lab.node()
    before = lab.cloud.version
    lab.ok("GET", NODES)
    lab.cloud.bill()
    assert lab.cloud.version == before
    lab.ok("DELETE", f"{NODES}/n1")
    after = lab.cloud.version
    assert after > before
    lab.after(1)
    assert lab.cloud.version > after


def test_a_restored_cloud_goes_on_where_the_snapshot_was_taken():
    """Pending operations end, replays are known, faults wait, machines are remembered."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    first = lab.ok("POST", f"{VMS}?requestId={UUID}", vm_body())
    lab.cloud.fail_next("tpu.nodes.get", ["transient"])
    data = lab.cloud.snapshot()

    other = a_lab(VirtualClock(lab.clock.now()))
    other.cloud.restore(data)
    assert other.ok("POST", f"{VMS}?requestId={UUID}", vm_body())["name"] == first["name"]
    other.after(1)
    assert other.ok("GET", f"{VMS}/v1")["status"] == "RUNNING"
    assert other.call("GET", f"{NODES}/n1")[0] == 503
    assert [m.id for m in other.cloud.machines()] == [m.id for m in lab.cloud.machines()]
    assert other.cloud.version > lab.cloud.version


def test_a_state_of_an_earlier_version_is_taken_wherever_its_classes_lay():
    """Modules move; a local cloud that somebody has on disk goes on."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.vm()
    lab.cloud.fail_next("tpu.nodes.get", ["transient"])
    now = pickle.dumps((1, lab.cloud.kernel.state), protocol=2)
    before, moved = re.subn(rb"corchestrator\.[a-z_.]+\n", b"corchestrator.local.model.world\n", now)
    assert moved >= 15
    other = a_lab(VirtualClock(lab.clock.now()))
    other.cloud.restore(before)
    assert other.ok("GET", f"{VMS}/v1") == lab.ok("GET", f"{VMS}/v1")
    assert [m.id for m in other.cloud.machines()] == [m.id for m in lab.cloud.machines()]


@pytest.mark.parametrize("data", [b"", b"not a pickle", b"\x80\x04N."])
def test_a_damaged_state_is_refused_and_the_present_one_stays(data):
    """The error says what to run; nothing changes."""
    lab = a_lab()
    lab.node()
    with pytest.raises(LocalCloudError) as caught:
        lab.cloud.restore(data)
    assert "tpuctl local reset" in caught.value.hint
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"


def test_every_machine_has_its_own_address_from_the_base():
    """Two clouds with different bases never share one, and none is 127.0.0.1."""
    one, two = a_lab(address_base="127.77.0.0"), a_lab(address_base="127.78.0.0")
    for lab in (one, two):
        lab.node(acceleratorType="v5litepod-16")
        lab.vm()
    addresses = [m.address for lab in (one, two) for m in lab.cloud.machines()]
    assert len(set(addresses)) == 10
    assert {a.rsplit(".", 2)[0] for a in addresses} == {"127.77", "127.78"}


def test_an_address_is_used_again_only_after_all_others():
    """The pool walks through the whole /16 first, then takes the one freed earliest."""
    pool = AddressPool("127.77.0.0")
    first, second = pool.take(), pool.take()
    pool.release(first)
    pool.release(second)
    rest = [pool.take() for _ in range(65532)]
    assert first not in rest
    assert pool.take() == first
    assert pool.take() == second
    with pytest.raises(LocalCloudError):
        pool.take()


@pytest.mark.parametrize("base", ["127.0.0.0", "10.0.0.0"])
def test_an_address_base_outside_loopback_is_refused(base):
    """Machines live on loopback, and not where everybody's services are."""
    with pytest.raises(LocalCloudError):
        AddressPool(base)


def test_parallel_creates_of_one_name_make_one_node():
    """Of eight threads exactly one gets through, the others get 409."""
    lab = a_lab()
    statuses = []
    target = f"{NODES}?nodeId=n1"
    threads = [
        threading.Thread(target=lambda: statuses.append(lab.call("POST", target, node_body())[0]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(statuses) == [200] + [409] * 7


def test_an_instant_cloud_is_ready_at_the_next_look():
    """With the profile `instant` nothing takes time on the clock."""
    lab = a_lab(latency=PROFILES["instant"])
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body(**SPOT_NODE))
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    lab.cloud.preempt("n1")
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "PREEMPTED"


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (f"{NODES}?nodeId=n1", node_body(metadata="x")),
        (f"{NODES}?nodeId=n1", node_body(labels={"a": 1})),
        (f"{NODES}?nodeId=n1", node_body(schedulingConfig={"spot": "yes"})),
        (f"{NODES}?nodeId=n1", node_body(dataDisks=["d"])),
        (f"{NODES}?pageSize=x&nodeId=n1", [1]),
        (VMS, vm_body(disks="x")),
        (VMS, vm_body(labels=[1])),
        (VMS, vm_body(metadata={"items": ["a"]})),
        (VMS, vm_body(metadata={"items": [{"value": "a"}]})),
        (VMS, vm_body(scheduling={"maxRunDuration": {"seconds": "soon"}})),
        (VMS, vm_body(scheduling={"terminationTime": "tomorrow"})),
        (VMS, vm_body(networkInterfaces=[1])),
    ],
)
def test_bodies_of_a_wrong_shape_are_refused_before_anything_changes(target, body):
    """400 in the form of the API; no machine, disk or operation is left behind."""
    lab = a_lab()
    status, answer = lab.call("POST", target, body)
    assert (status, answer["error"]["code"]) == (400, 400)
    state = lab.cloud.kernel.state
    assert [state.nodes, state.instances, state.disks, state.operations, state.machines] == [{}] * 5


def test_the_addresses_of_removed_machines_come_back():
    """When the pool has no fresh address left, the one of a deleted node is given again."""
    lab = a_lab()
    first = lab.node()["networkEndpoints"][0]["ipAddress"]
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(1)
    pool = lab.cloud.kernel.state.pool
    while pool.take() != first:
        continue
    pool.release(first)
    assert lab.node("n2")["networkEndpoints"][0]["ipAddress"] == first
