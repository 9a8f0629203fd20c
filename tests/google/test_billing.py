"""The billing catalogue of the local cloud, read through the adapter, and cached for the next command."""

import json

import pytest

from orchestrator.app.prices import body_of, cache_file, catalog_for
from orchestrator.config.shipped_catalog import load_catalog, shipped_catalog, use_catalog
from orchestrator.emulator.client import BASE, CloudAdapter
from orchestrator.emulator.http.error_bodies import plain_error
from orchestrator.emulator.http.price_skus import billing_routes
from orchestrator.emulator.http.router import Router
from orchestrator.errors import AuthError
from orchestrator.google import billing_catalog
from orchestrator.google.billing_catalog import read_skus
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.pricing.skus import prices_of
from tests.google.adapter_lab import a_lab

PLACE = ("v5litepod-4", "europe-west4-b")


@pytest.fixture
def router():
    """Give the routes of the billing catalogue."""
    made = Router()
    billing_routes(made)
    return made


@pytest.fixture
def clients(router):
    """Give clients of a local cloud in this process."""
    return Clients(CloudSettings("local-project", BASE, adapter=CloudAdapter(router, a_lab().local)))


@pytest.fixture(autouse=True)
def _shipped():
    yield
    use_catalog(shipped_catalog())


def test_all_pages_of_both_services_are_read(clients, monkeypatch):
    """Small pages give what one page gives."""
    whole = prices_of(read_skus(clients))
    monkeypatch.setattr(billing_catalog, "PAGE", 3)
    assert prices_of(read_skus(clients)) == whole
    assert {kind for kind, _, _ in whole} == {"v2", "v3", "v4", "v5e", "v5p"}
    assert whole["v5e", "europe-west4", False].spot == pytest.approx(0.78)
    assert whole["v2", "europe-west4", True].on_demand == pytest.approx(1.65)


def test_a_login_without_the_right_is_refused_with_that_reason():
    """Nothing is changed then; the prices of before are used."""
    router = Router()
    router.add(
        "GET",
        "/v1/services/{service}/skus",
        lambda request, service: plain_error(request, 403, "PERMISSION_DENIED", "The API is disabled"),
    )
    closed = Clients(CloudSettings("local-project", BASE, adapter=CloudAdapter(router, a_lab().local)))
    with pytest.raises(AuthError, match="billing catalogue"):
        list(read_skus(closed))


def test_refreshed_prices_are_stored_and_used_and_those_of_another_cloud_are_not(
    clients, tmp_path, monkeypatch
):
    """Every part of the process sees them; without the file the shipped ones come back."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path))
    shipped = catalog_for("local").tpu_price(*PLACE, spot=True)
    path = cache_file("local")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(body_of(prices_of(read_skus(clients)), "2026-11-23")))
    fresh = catalog_for("local")
    assert fresh.tpu_price(*PLACE, spot=True) == pytest.approx(4 * 0.78) != shipped
    assert load_catalog() is fresh
    assert fresh.dates["tpu_prices"] == "2026-11-23"
    assert catalog_for("gcp").tpu_price(*PLACE, spot=True) == shipped
    assert load_catalog() is not fresh


DAMAGED = [
    "", "{", "[]", '{"schema": 9, "prices": []}', '{"schema": 1, "date": "x", "prices": [[1]]}',
    '{"schema": 1, "date": "x", "prices": [["v5e", "us-west1", false, -1, 0.1]]}',
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_as_none(text, tmp_path, monkeypatch):
    """The shipped prices hold."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path))
    cache_file("local").parent.mkdir(parents=True)
    cache_file("local").write_text(text)
    assert catalog_for("local") is shipped_catalog()
