"""Zones of two regions in the local cloud: the bucket stays, the TPU goes where one is to be had, none is left."""

import pytest

from orchestrator.contract.bucket import object_names
from orchestrator.domain.names import region_of
from orchestrator.domain.observation import NodeState
from tests.engine.engine_lab import OTHER_ZONE, ZONE, ControllerKilled, EngineLab, one_zone_spec

AWAY, FURTHER = "us-west4-a", "us-central1-a"
TWO = {"tpu__zones": [ZONE, AWAY], "tpu__across_regions": True}
SPEC = one_zone_spec(**TWO, vm="none")
RACE = one_zone_spec(
    tpu__zones=[ZONE, AWAY, OTHER_ZONE, FURTHER], tpu__across_regions=True, tpu__strategy="race", vm="none"
)


def where(lab):
    """Return the zones of all nodes of the cloud."""
    lab.cloud.tick()
    return sorted(n.zone for n in lab.cloud.kernel.state.nodes.values())


def asked(controller):
    """Return the zones that were asked for a TPU, in order."""
    return [e.data["zone"] for e in controller.events if e.kind == "tpu-create"]


def location(lab):
    """Return where the bucket lies."""
    (bucket,) = lab.storage.buckets.list("local-project")
    return bucket.location.lower()


def test_the_bucket_stays_and_the_tpu_goes_to_the_other_region_and_comes_back(lab):
    """A lost TPU and an empty region: the next one is elsewhere; after its preemption the first is asked again."""
    controller = lab.up(SPEC)
    assert (where(lab), location(lab)) == ([ZONE], region_of(ZONE))
    lab.change(stockouts=frozenset({ZONE}))
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.up()
    lab.wait(300)
    controller.run(lambda r: r.plan.settled)
    assert (where(lab), location(lab)) == ([AWAY], region_of(ZONE))
    lab.wait(6 * 3600)
    lab.change(stockouts=frozenset())
    lab.cloud.preempt(f"demo-tpu-g{controller.record.node.incarnation}", notice=False)
    controller.up()
    assert asked(controller)[-1] == ZONE


def test_down_sweeps_both_regions_also_after_the_file_names_one(lab):
    """A TPU in a region that the file no longer names is found and deleted."""
    lab.change(stockouts=frozenset({ZONE}))
    lab.up(SPEC)
    lab.wait(120)
    assert where(lab) == [AWAY]
    other = lab.controller(one_zone_spec(vm="none"))
    assert other.deletion().machines() == ()
    assert where(lab) == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 3))
def test_a_kill_around_a_create_leaves_one_tpu_in_one_of_the_regions(tmp_path, moment, number):
    """Killed around the create in the first region or the second: one TPU is left, and `down` finds it."""
    lab = EngineLab(tmp_path, stockouts=frozenset({ZONE}))
    observed = 0

    def kill(what):
        nonlocal observed
        if what.startswith("POST") and what.endswith("/nodes"):
            observed += 1
            if observed == number:
                raise ControllerKilled

    setattr(lab.wire, moment, kill)
    with pytest.raises(ControllerKilled):
        lab.up(SPEC)
    setattr(lab.wire, moment, lambda what: None)
    lab.wait(300)
    controller = lab.up(SPEC)
    lab.wait(300)
    controller.run(lambda r: r.plan.settled)
    assert list(lab.nodes().values()) == [NodeState.READY]
    assert where(lab) == [AWAY]
    assert lab.controller(SPEC).deletion().machines() == ()
    assert where(lab) == []


def test_a_race_stays_in_one_region_and_goes_on_in_the_other(tmp_path):
    """Both zones of the bucket's region race; when these have none, those of the other."""
    lab = EngineLab(tmp_path, latency="realistic")
    controller = lab.controller(RACE)
    controller.up()
    assert sorted(asked(controller)) == [OTHER_ZONE, ZONE]
    lab.wait(300)
    lab.change(stockouts=frozenset({ZONE, OTHER_ZONE}))
    lab.cloud.preempt(f"demo-tpu-g{controller.record.node.incarnation}", notice=False)
    controller.run(seconds=900)
    assert len({region_of(zone) for zone in where(lab)}) == 1
    assert region_of(where(lab)[0]) != region_of(ZONE)


def test_a_race_over_regions_asks_in_all_of_them(tmp_path):
    """Where the file says race-regions."""
    lab = EngineLab(tmp_path, latency="realistic")
    spec = one_zone_spec(**TWO, tpu__strategy="race-regions", vm="none")
    controller = lab.controller(spec)
    controller.want()
    controller.run(lambda r: len(where(lab)) > 1)
    assert where(lab) == sorted([ZONE, AWAY])


def test_a_bucket_in_a_multi_region_is_made_and_accepted(lab):
    """It lies in no region, and no TPU is refused for it."""
    lab.up(one_zone_spec(**TWO, bucket__location="eu", vm="none"))
    assert location(lab) == "eu"
    assert lab.get(object_names.RECORD) is not None
    assert where(lab) == [ZONE]
