"""TPU nodes: requests, states, lists and operations, through the official client."""

import pytest

from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Kind, Verb
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.errors import ConflictError, NotFoundError, QuotaError, Retry, UsageError
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_lab, a_node

QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"


def test_a_node_is_created_and_observed_with_what_was_requested():
    """The node that the list shows has our name, labels, incarnation, tier and worker."""
    lab = a_lab()
    operation = lab.nodes.create(a_node())
    assert (operation.kind, operation.verb, operation.incarnation) == (Kind.NODE, Verb.CREATE, 3)
    assert operation.started_at == pytest.approx(lab.clock.now(), abs=1)
    assert lab.nodes.poll(operation).done
    observed = lab.nodes.labelled(LABEL, "demo", [ZONE])
    (node,) = observed.value
    assert (node.name, node.zone, node.state, node.incarnation) == ("demo-tpu-g3", ZONE, NodeState.READY, 3)
    assert node.spot
    assert node.healthy
    assert node.labels[LABEL] == "demo"
    assert [w.index for w in node.workers] == [0]
    assert node.workers[0].internal_ip.startswith("127.")
    assert node.created_at == pytest.approx(lab.clock.now(), abs=1)


def test_a_node_switches_guest_attributes_on():
    """Without guest attributes a machine cannot publish its host keys."""
    lab = a_lab()
    lab.nodes.create(a_node())
    (machine,) = lab.machines
    assert machine.attributes["enable-guest-attributes"] == "TRUE"
    assert machine.attributes["startup-script"] == a_node().metadata["startup-script"]


def test_a_slice_shows_its_workers_in_order():
    """A slice of several hosts has one worker for each host."""
    lab = a_lab()
    lab.nodes.create(a_node(type="v5litepod-16"))
    (node,) = lab.nodes.labelled(LABEL, "demo", [ZONE]).value
    assert [w.index for w in node.workers] == [0, 1, 2, 3]
    assert len({w.internal_ip for w in node.workers}) == 4


def test_nodes_of_others_are_skipped():
    """Only nodes with the label and value that was asked for are listed."""
    lab = a_lab()
    lab.nodes.create(a_node())
    lab.nodes.create(a_node(name="else-tpu-g1", labels={LABEL: "else"}))
    lab.nodes.create(a_node(name="bare", labels={}))
    (node,) = lab.nodes.labelled(LABEL, "demo", [ZONE]).value
    assert node.name == "demo-tpu-g3"


def test_all_zones_are_listed():
    """Nodes of every zone come back, in the order of the zones; a zone named twice is asked once."""
    lab = a_lab()
    lab.nodes.create(a_node())
    lab.nodes.create(a_node(name="demo-tpu-g4", zone=OTHER_ZONE))
    observed = lab.nodes.labelled(LABEL, "demo", [OTHER_ZONE, ZONE, OTHER_ZONE])
    assert [n.name for n in observed.value] == ["demo-tpu-g4", "demo-tpu-g3"]
    assert lab.local.calls["tpu.nodes.list"] == 2


def test_no_zones_have_no_nodes():
    """Nothing asked, nothing unknown."""
    assert a_lab().nodes.labelled(LABEL, "demo", []) == Present(())


def test_one_silent_zone_makes_the_whole_list_unknown():
    """Unknown is not absent: the other zones' nodes do not stand for all."""
    lab = a_lab(hidden_zones=frozenset({OTHER_ZONE}))
    lab.nodes.create(a_node())
    observed = lab.nodes.labelled(LABEL, "demo", [ZONE, OTHER_ZONE])
    assert isinstance(observed, Unknown)
    assert OTHER_ZONE in observed.message
    assert observed.retry is Retry.PERMANENT


def test_a_taken_name_is_a_conflict():
    """A second create of the same name is refused, and is no sign to wait."""
    lab = a_lab()
    lab.nodes.create(a_node())
    with pytest.raises(ConflictError) as caught:
        lab.nodes.create(a_node())
    assert not caught.value.aborted


def test_a_busy_answer_is_a_conflict_worth_another_try():
    """ABORTED has the same HTTP status as a taken name, and the opposite meaning."""
    lab = a_lab()
    lab.local.fail_next("tpu.nodes.create", ["concurrent operation"])
    with pytest.raises(ConflictError) as caught:
        lab.nodes.create(a_node())
    assert caught.value.aborted
    assert caught.value.retry is Retry.TRANSIENT


def test_a_lost_answer_leaves_a_node_that_the_list_shows():
    """The create is not repeated by us; the node is found by its label."""
    lab = a_lab()
    lab.local.fail_next("tpu.nodes.create", ["drop-answer"])
    with pytest.raises(Exception, match="create TPU node") as caught:
        lab.nodes.create(a_node())
    assert caught.value.retry is Retry.TRANSIENT
    assert "not known" in caught.value.changed
    assert lab.local.calls["tpu.nodes.create"] == 1
    assert [n.name for n in lab.nodes.labelled(LABEL, "demo", [ZONE]).value] == ["demo-tpu-g3"]


def test_stockout_comes_with_the_operation():
    """The call succeeds; the operation ends with a capacity error."""
    lab = a_lab(stockouts=frozenset({ZONE}), latency=PROFILES["scaled"])
    operation = lab.nodes.create(a_node())
    assert not lab.nodes.poll(operation).done
    lab.clock.advance(10)
    result = lab.nodes.poll(operation)
    assert (result.done, result.retry, result.code) == (True, Retry.CAPACITY, "TPU-300")


def test_quota_is_refused_at_the_call():
    """A quota error is raised by create and names the quota page."""
    lab = a_lab()
    lab.local.fail_next("tpu.nodes.create", ["quota exceeded"])
    with pytest.raises(QuotaError) as caught:
        lab.nodes.create(a_node())
    assert "quotas" in caught.value.hint


def test_a_type_that_the_zone_lacks_is_the_files_mistake():
    """The user gets a usage error, not a retry."""
    with pytest.raises(UsageError):
        a_lab().nodes.create(a_node(type="v4-8"))


def test_a_preempted_node_stays_until_deleted():
    """PREEMPTED is a state of a node that is there; deletion works, twice."""
    lab = a_lab()
    lab.nodes.create(a_node())
    lab.local.preempt("demo-tpu-g3", notice=False)
    (node,) = lab.nodes.labelled(LABEL, "demo", [ZONE]).value
    assert node.state is NodeState.PREEMPTED
    operation = lab.nodes.delete("demo-tpu-g3", ZONE)
    assert lab.nodes.poll(operation).done
    assert lab.nodes.labelled(LABEL, "demo", [ZONE]) == Present(())
    assert lab.nodes.delete("demo-tpu-g3", ZONE) is None


def test_an_unhealthy_node_says_why():
    """READY alone does not mean healthy."""
    lab = a_lab()
    lab.nodes.create(a_node())
    lab.local.set_node_state("demo-tpu-g3", "UNHEALTHY_MAINTENANCE")
    (node,) = lab.nodes.labelled(LABEL, "demo", [ZONE]).value
    assert not node.healthy
    assert "UNHEALTHY_MAINTENANCE" in node.health


@pytest.mark.parametrize("worker", [0, 2])
def test_host_keys_are_those_of_the_worker(worker):
    """Each worker of a slice has its own keys."""
    lab = a_lab()
    lab.nodes.create(a_node(type="v5litepod-16"))
    for index, machine in enumerate(lab.machines):
        lab.local.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", f"AAAA{index}")
        lab.local.put_guest_attribute(machine.id, "hostkeys", "ssh-rsa", f"BBBB{index}")
    expected = (f"ssh-ed25519 AAAA{worker}", f"ssh-rsa BBBB{worker}")
    assert lab.nodes.host_keys("demo-tpu-g3", ZONE, worker) == expected


def test_host_keys_that_are_not_there_yet_are_not_found():
    """A booting machine has published nothing."""
    lab = a_lab()
    lab.nodes.create(a_node())
    with pytest.raises(NotFoundError):
        lab.nodes.host_keys("demo-tpu-g3", ZONE, 0)


def test_a_forgotten_operation_is_done_with_an_unknown_end():
    """Only the resource itself shows how it ended."""
    lab = a_lab()
    operation = lab.nodes.create(a_node())
    gone = type(operation)(operation.id + "0", Kind.NODE, Verb.CREATE, operation.name, ZONE)
    result = lab.nodes.poll(gone)
    assert (result.done, result.retry, result.forgotten) == (True, None, True)


def test_a_failed_look_at_an_operation_leaves_it_open():
    """A poll that fails says nothing about the operation."""
    lab = a_lab()
    operation = lab.nodes.create(a_node())
    lab.local.fail_next("tpu.operations.get", ["transient"])
    result = lab.nodes.poll(operation)
    assert not result.done
    assert result.message


def test_a_refusal_for_quota_compares_and_names_the_type_that_would_fit():
    """A fresh project has a quota of 4 for v5litepod-8, in every zone alike."""
    lab = a_lab(fresh_project=True)
    with pytest.raises(QuotaError) as refused:
        lab.nodes.create(a_node())
    assert "you requested 8 chips, the limit is 4: v5litepod-4 would fit (tpu.type); " in refused.value.hint
    lab.nodes.create(a_node(type="v5litepod-4"))
    with pytest.raises(QuotaError) as full:
        lab.nodes.create(a_node(name="demo-tpu-g4", type="v5litepod-4"))
    assert "you requested 4 chips, the limit is 4: other TPUs use too much of it; " in full.value.hint


def test_a_slice_counts_against_the_quota_for_training():
    """The small types of v5e are counted as for serving, v5litepod-16 and larger are not."""
    lab = a_lab(quotas={(QUOTA, ZONE): 4})
    lab.nodes.create(a_node(type="v5litepod-16"))
    training = "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"
    with pytest.raises(QuotaError):
        a_lab(quotas={(training, ZONE): 8}).nodes.create(a_node(type="v5litepod-16"))
