"""What `cost`, `down`, the report and a fleet's cost say was saved, where the price lists differ."""

from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from orchestrator.app.deployment.earlier_costs import Cost
from orchestrator.app.fleet.queue import Queue
from orchestrator.app.up import _price as price_of
from orchestrator.cli.views.cost import cost_text, render
from orchestrator.cli.views.fleet_usage import _sum_line, cost_sentences
from orchestrator.cli.views.local import show_status
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.record import Span
from orchestrator.planning.fleet.fleet_cost import Amount, FleetCost, FleetUsage
from orchestrator.planning.fleet.users import FleetUsers
from orchestrator.pricing.cost_breakdown import cost_breakdown
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import record

HOUR = 3600.0


def found():
    """Return an hour of a TPU whose spot price is 2.38 USD in one list and 4.80 in the other, 9.60 on demand."""
    spec = a_spec(tpu__type="v5litepod-8", tpu__zones=["us-central1-a"], vm="none")
    span = Span(Kind.NODE, "demo-tpu-g1", "us-central1-a", 0.0, HOUR)
    return cost_breakdown(spec, load_catalog(), record(spans=(span,)), [], HOUR)


def test_down_tells_both_ends_of_the_cost_and_of_what_was_saved():
    """The lower price alone would promise too much."""
    text = cost_text(found(), unbilled=False)
    assert text.startswith("It cost about 2.39 to 4.80 USD; on demand 9.61 USD, so 49 to 75% saved.")


def test_cost_tells_both_ends_of_what_was_saved():
    """Its tables have the lower prices, and it says so."""
    console = Console(width=80, record=True, file=StringIO())
    both = replace(found(), usd_hour=1.22, upper_usd_hour=2.43)
    render(Cost("demo", 1, both), console, unbilled=False)
    text = " ".join(console.export_text().split())
    assert "What exists now costs 1.22 to 2.43 USD an hour." in text
    assert "Google bills nothing for a TPU that it preempts in its first minute; it is counted here." in text
    assert "Wasted by 1 preemption: 0.0000 USD at the lowest prices (lost and recovering)." in text
    assert "Saved against on demand: 4.80 to 7.22 USD (49 to 75%)." in text
    assert "resource zone, region time" in text, "storage has a region"
    assert "use USD of the cost what it paid for" in text, "`watch` has the share of the time"
    assert "not known" in text
    assert "what the TPU did was not reported" in text, "each use is explained"
    assert "The tables use the lowest prices; at the highest, the sum is 4.80 USD." in text


def test_a_fleet_tells_both_ends_too_and_counts_its_budget_as_it_ends():
    """A budget ends a fleet by the upper prices."""
    paid = FleetCost({"sweep": Amount(HOUR, 2.4, 9.6, upper_usd=4.8)}, {}, {})
    usage = FleetUsage("demo", 0.0, (), (), paid, frozenset(), {}, 10.0, unbilled=False)
    nothing = Queue((), "", {}, {}, FleetUsers())
    assert _sum_line(nothing, usage).endswith("; 2.40 to 4.80 USD"), "the line below `fleet queue` too"
    lines = cost_sentences(usage)
    assert lines[:2] == [
        "On demand: 9.60 USD, so 50 to 75% saved.",
        "The budget of 10 USD: 48% spent at the upper prices.",
    ]


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ((), 2 * 24 * HOUR),
        ((Span(Kind.NODE, "demo-tpu-g1", "us-central1-a", 1010.0, 1020.0),), 2 * 24 * HOUR - 60),
    ],
    ids=["first machine", "has run"],
)
def test_the_seconds_before_the_first_machine_are_no_part_of_ttl(spans, seconds):
    """`up` takes some before it shows the price, and by them its sum differed from that of `plan` by a cent."""
    spec = a_spec(tpu__type="v5litepod-8", tpu__zones=["us-central1-a"], vm="none", watch__ttl="2d")
    session = SimpleNamespace(
        spec=spec, catalog=load_catalog(), choice=SimpleNamespace(cloud="gcp"),
        clock=SimpleNamespace(now=lambda: 1060.0),
        records=SimpleNamespace(current=record(started_at=1000.0, spans=spans)),
    )  # fmt: skip
    create = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g1", "absent", "us-central1-a", 1)
    assert price_of(session, Plan((create,))).seconds == seconds


def test_the_sum_of_the_local_cloud_says_what_it_counts_and_where_the_other_one_is(capsys):
    """Beside `tpuctl cost`, which counts other things of one deployment, it would look like a contradiction."""
    bill = [{"usd": 0.0125}, {"usd": None}]
    show_status({"running": True, "endpoint": "http://127.0.0.1:1", "bill": bill}, as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "it would have cost 0.0125 USD at the lowest prices: TPUs, VMs and disks of all",
        "deployments, without what was preempted in its first minute, which is free.",
        "`tpuctl cost` counts that and storage too, for one deployment",
    ]


def test_the_local_cloud_lists_machines_below_the_tpu_or_vm_that_they_belong_to(capsys):
    """The names of a TPU's machines are Google's, and do not contain its own; a preempted one has none."""
    machines = [
        {"id": f"m{n}", "name": f"t1v-n-{n}", "address": f"127.0.0.{n}", "running": n == 2} for n in (1, 2, 3)
    ]
    body = {
        "running": True, "endpoint": "http://127.0.0.1:1", "machines": machines,
        "tpus": [
            {"name": "demo-tpu-g1", "zone": "us-central1-a", "state": "PREEMPTED", "machines": []},
            {"name": "demo-tpu-g2", "zone": "us-central1-a", "state": "READY", "machines": ["m1", "m2"]},
        ],
        "vms": [{"name": "demo-vm", "zone": "us-central1-a", "state": "TERMINATED", "machines": ["m3"]}],
    }  # fmt: skip
    show_status(body, as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "TPU demo-tpu-g1  us-central1-a  PREEMPTED",
        "  no machine",
        "TPU demo-tpu-g2  us-central1-a  READY",
        "  worker 0: t1v-n-1  127.0.0.1  stopped",
        "  worker 1: t1v-n-2  127.0.0.2  running",
        "VM demo-vm  us-central1-a  TERMINATED",
        "  t1v-n-3  127.0.0.3  stopped",
    ]
