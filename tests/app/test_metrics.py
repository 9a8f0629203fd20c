"""`watch --metrics`: what Prometheus reads, where, and that the documentation names it all."""

import http.client
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from orchestrator.app.loop import metrics
from orchestrator.app.loop.metrics import COUNTERS, GAUGES, Metrics, metrics_table
from orchestrator.domain.wait import Wait
from orchestrator.emulator.start_options import free_ports
from orchestrator.errors import UsageError
from tests.cli.cli_kit import ROOT
from tests.cli.test_status_view import LOST, body


@pytest.fixture
def served():
    """Give metrics that are served, and what reads them."""
    one = Metrics(free_ports(1)[0], "mine")

    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/metrics", timeout=60) as answer:
            return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")

    yield one, read
    one.close()


def test_what_a_pass_has_observed_can_be_read(served):
    """Numbers of the last pass; states that are over are gone, and so is what is not known any more."""
    one, read = served
    one.update(body(), 1000.0, failures=0)
    found = read()
    assert found['tpuctl_worker_step{deployment="mine",worker="0"}'] == "120.0"
    assert found['tpuctl_worker_checkpoint_age_seconds{deployment="mine",worker="0"}'] == "12.0"
    assert found['tpuctl_preemptions{deployment="mine"}'] == "2.0"
    assert found['tpuctl_cost_usd{deployment="mine"}'] == "0.0438"
    assert found['tpuctl_budget_usd{deployment="mine"}'] == "5.0"
    (tpu,) = [key for key in found if "numpy-lm-tpu-g3" in key]
    assert 'state="READY"' in tpu
    one.update(LOST, 1015.0, failures=2)
    found = read()
    assert not [key for key in found if "numpy-lm-tpu-g3" in key or key.startswith("tpuctl_budget_usd")]
    assert found['tpuctl_passes_total{deployment="mine"}'] == "2.0"
    assert found['tpuctl_failures_total{deployment="mine"}'] == "2.0"
    assert found['tpuctl_pending_changes{deployment="mine"}'] == "2.0"
    one.update(replace(LOST, next_changes=(), waits_for=(Wait("TPU: CREATING"),)), 1030.0, failures=0)
    assert read()['tpuctl_pending_changes{deployment="mine"}'] == "0.0", "what is waited for is no change"
    names = {key.partition("{")[0] for key in found}
    assert names - {f"{name.removesuffix('_total')}_created" for name in COUNTERS} <= {*GAUGES, *COUNTERS}


def test_the_metrics_server_listens_on_this_computer_only_and_not_after_the_end(served):
    """Nobody else on the network reads it; the port is free again afterwards."""
    one, read = served
    assert one._server.server_address[0] == "127.0.0.1"
    port = one.port
    with pytest.raises(UsageError, match=f"port {port} of this computer cannot be used") as taken:
        Metrics(port, "other")
    assert taken.value.code == "TPU-135"
    one.update(body(), 1.0, failures=0)
    assert read()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:9300"}, 403), ({"Host": "evil.example"}, 403), ({"Host": ""}, 403),
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "localhost:9999"}, 200), ({"Host": "127.0.0.1"}, 200), ({"Sec-Fetch-Site": "none"}, 200),
    ],
)  # fmt: skip
def test_no_web_page_reads_it(served, headers, status):
    """Neither from another site nor by a name that its DNS leads here; a tunnel may have another port."""
    one, _ = served
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    assert answer.status == status
    assert (b"tpuctl_" in answer.read()) == (status == 200)
    connection.close()


def test_the_documentation_names_every_metric():
    """docs/metrics.md has the table of the code."""
    assert metrics_table() in (ROOT / "docs" / "metrics.md").read_text()


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="needs prometheus-client") as missing:
        metrics.Metrics(0, "mine")
    assert (missing.value.code, missing.value.hint) == ("TPU-138", "pip install 'tpuctl[metrics]'")
