"""What a project may have of a quota of TPUs, as the Cloud Quotas API reports it, through the adapter."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.observation import Present, Unknown
from orchestrator.emulator.client import BASE, CloudAdapter
from orchestrator.emulator.http.quotas import quota_routes
from orchestrator.emulator.http.router import Router
from orchestrator.errors import QuotaError
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.project_reader import ProjectReader, _limit
from tests.google.adapter_lab import OTHER_ZONE, ZONE, a_lab, a_node

SERVING = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
PODS = "TPUV3sPodPerProjectPerRegionForTPUAPI"


def ask(quota, **settings):
    """Return what is read of *quota* in two zones of a local cloud with *settings*."""
    router = Router()
    lab = a_lab(**settings)
    quota_routes(router, lab.local)
    clients = Clients(
        CloudSettings("local-project", BASE, read_retry=0, adapter=CloudAdapter(router, lab.local))
    )
    return ProjectReader(clients).tpu_limits(quota, [ZONE, OTHER_ZONE])


def test_a_new_project_has_its_limits_and_what_was_granted_goes_before():
    """Zone by zone; a project without limits says so."""
    assert ask(SERVING, fresh_project=True) == Present({ZONE: 4, OTHER_ZONE: 4})
    granted = ask(SERVING, fresh_project=True, quotas={(SERVING, ZONE): 64})
    assert granted == Present({ZONE: 64, OTHER_ZONE: 4})
    assert ask(SERVING) == Present({ZONE: -1, OTHER_ZONE: -1})
    assert ask(PODS, fresh_project=True) == Present({ZONE: 0, OTHER_ZONE: 0})


@pytest.mark.parametrize(
    "settings",
    [
        {"disabled_apis": frozenset({"cloudquotas.googleapis.com"})},
        {"denied_permissions": frozenset({"cloudquotas.quotas.get"})},
    ],
)
def test_an_api_that_is_off_or_refuses_leaves_the_limit_unknown(settings):
    """It is no limit of nothing."""
    assert isinstance(ask(SERVING, **settings), Unknown)


def test_an_entry_that_names_the_place_goes_before_the_one_for_all_others():
    """As the reference of the API says it; an entry of another zone, or without a value, says nothing."""
    general = {"details": {"value": "4"}, "applicableLocations": ["a-b1-c", "a-b1-d"]}
    named = {"dimensions": {"zone": "a-b1-c"}, "details": {"value": "64"}}
    assert [_limit([general, named], zone) for zone in ("a-b1-c", "a-b1-d")] == [64, 4]
    assert _limit([named, {"dimensions": {"zone": "a-b1-d"}}], "a-b1-d") is None


@pytest.mark.parametrize("spot", [True, False])
def test_what_a_new_project_may_have_is_what_the_catalogue_says(spot):
    """For each type that is served: it is made when it fits, and refused with the quota's own id when not."""
    catalog = load_catalog()
    for name in catalog.served():
        quota, kind = catalog.quota_of(name, spot=spot), catalog.accelerator(name)
        lab = a_lab(fresh_project=True)
        order = a_node(type=name, zone=catalog.zones_of(name)[0], runtime=kind.runtime, spot=spot)
        if kind.counted <= quota.fresh:
            lab.nodes.create(order)
            continue
        with pytest.raises(QuotaError) as refused:
            lab.nodes.create(order)
        assert quota.id in refused.value.message
        assert f"you requested {kind.counted} {quota.unit}, the limit is {quota.fresh}" in refused.value.hint
