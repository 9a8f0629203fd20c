"""The plan of a whole `up`, made without a cloud."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.plan import Kind, Verb
from orchestrator.planning.whole_plan import plan_from_nothing
from tests.planning.planning_kit import a_spec

CATALOG = load_catalog()
ZONES = sorted(CATALOG.zones)


def test_the_plan_from_nothing_is_what_up_does():
    """The three resources side by side, the code, and the job where machines do not start it themselves."""
    plan = plan_from_nothing(a_spec(), CATALOG.accelerator("v5litepod-16"), "b", "a")
    kinds = [(c.kind, c.verb) for c in plan.changes]
    assert kinds[:3] == [(Kind.BUCKET, Verb.CREATE), (Kind.VM, Verb.CREATE), (Kind.NODE, Verb.CREATE)]
    assert (Kind.BUNDLE, Verb.CREATE) in kinds
    assert kinds.count((Kind.NODE, Verb.CREATE)) == 1


def test_a_deployment_without_vm_has_none_in_its_plan():
    """`vm: none` is allowed."""
    plan = plan_from_nothing(a_spec(vm="none"), CATALOG.accelerator("v5litepod-16"), "b", "a")
    assert Kind.VM not in {c.kind for c in plan.changes}


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    choice=st.integers(0, 500),
    vm=st.booleans(),
    spot=st.booleans(),
    on_vm=st.booleans(),
    adopt=st.booleans(),
    poll=st.sampled_from(["1s", "15s", "10m"]),
)
def test_the_whole_plan_comes_to_rest_for_every_valid_file(zone, choice, vm, spot, on_vm, adopt, poll):
    """Every accelerator of every zone: each resource is asked for at most once, and nothing is deleted."""
    types = CATALOG.zones[zone]
    name = types[choice % len(types)]
    parts = {"tpu__type": name, "tpu__zones": [zone], "tpu__spot": spot, "watch__poll": poll}
    parts["job__run_on"] = "vm" if on_vm and vm else "tpu"
    if not vm:
        parts["vm"] = "none"
    if adopt:
        parts |= {"bucket__adopt": True, "bucket__name": "a-bucket"}
    spec = a_spec(**parts)
    if run_rules(spec, CATALOG):
        return
    plan = plan_from_nothing(spec, CATALOG.accelerator(name), "b", "a")
    done = [(c.kind, c.verb) for c in plan.changes]
    assert len(done) == len(set(done))
    assert (Kind.NODE, Verb.CREATE) in done
    assert Verb.DELETE not in {verb for _, verb in done}
