"""Nobody ever comes back: the TPU's self-deletion ends its bill."""

from orchestrator.emulator.state.billing import bill
from tests.engine.engine_lab import EngineLab, one_zone_spec
from tests.kit.safety_nets import MINUTE, ask

TTL = 2 * 3600.0


def abandoned(tmp_path, **watch):
    """Return a deployment that is up, and whose controller and computer are dead."""
    lab = EngineLab(tmp_path)
    lab.up(one_zone_spec(watch__ttl="2h", **watch))
    return lab, lab.clock.now()


def minutes(lab, count):
    """Let minutes pass, each of which asks the timers."""
    for _ in range(count):
        lab.wait(MINUTE)
        ask(lab.wire.router, lab.cloud, lab.folder / "machines")


def running(lab):
    """Return what is still billed by the hour."""
    lab.cloud.tick()
    return [u.resource for u in lab.cloud.kernel.state.usage if u.end is None and u.kind != "disk"]


def test_with_all_safety_nets_armed_the_bill_stops_ten_minutes_after_the_time_to_live(tmp_path):
    """VM by Google's limit, TPU by its self-deletion."""
    lab, began = abandoned(tmp_path, watch__self_delete=True)
    minutes(lab, int(TTL / MINUTE) - 5)
    assert len(running(lab)) == 2, "nothing goes before its time"
    minutes(lab, 25)
    assert running(lab) == []
    lines = bill(lab.cloud.kernel.state.usage, lab.clock.now())
    assert all(line.seconds <= TTL + 600 for line in lines if line.kind != "disk")
    assert lab.clock.now() - began >= TTL + 600


def test_without_self_deletion_a_tpu_runs_on(tmp_path):
    """Which is what the plan says: Google has no limit for it."""
    lab, _ = abandoned(tmp_path)
    minutes(lab, int(TTL / MINUTE) + 20)
    assert len(running(lab)) == 1


def test_a_longer_time_to_live_reaches_machines_that_run(tmp_path):
    """They ask the record, not what they were made with; one without self-deletion in the file is disarmed."""
    for change in ({"watch__ttl": "4h", "watch__self_delete": True}, {"watch__ttl": "2h"}):
        lab, _ = abandoned(tmp_path / str(len(change)), watch__self_delete=True)
        lab.up(one_zone_spec(**change))
        minutes(lab, int(TTL / MINUTE) + 20)
        assert [name for name in running(lab) if "tpu" in name]


def test_a_loop_at_work_ends_the_deployment_itself_and_self_deletion_waits(tmp_path):
    """A fresh lease keeps self-deletion from acting, however late it is."""
    lab = EngineLab(tmp_path)
    controller = lab.up(one_zone_spec(watch__ttl="2h", watch__self_delete=True))
    lab.wait(TTL + 3600)
    controller.lease.keep()
    ask(lab.wire.router, lab.cloud, lab.folder / "machines")
    assert [name for name in running(lab) if "tpu" in name]
