"""`tpuctl status --all -f` looks at many deployments and lists each zone once."""

from orchestrator.google.nodes import TpuNodes
from tests.kit.user import User


def test_a_zone_is_listed_once_for_all_deployments(elsewhere, monkeypatch):
    """Each row shows its own TPU all the same."""
    user = elsewhere()
    asked, really = [], TpuNodes._listed
    monkeypatch.setattr(
        TpuNodes, "_listed", lambda self, zone, *more: (asked.append(zone), really(self, zone, *more))[1]
    )
    found = user.type("status", "--all", "--json").document["deployments"]
    assert [(row["name"], row["tpu"]) for row in found] == [("demo", "READY"), ("other", "READY")]
    assert asked == ["europe-west4-b"]


def test_a_computer_that_brought_nothing_up_says_so(cloud):
    """A table with a head and no rows would look like a fault."""
    said = User(cloud).type("status", "--all")
    assert (said.code, said.out) == (0, "")
    assert "no deployment of this computer exists on --cloud gcp; next: tpuctl up" in said.err
