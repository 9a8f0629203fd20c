"""What `down` says and asks before it deletes."""

import io
import sys

import pytest

from tests.cli.cli_kit import stray_vm
from tests.kit.cloud import Cloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer whose deployment is up."""
    with Cloud(tmp_path).open() as cloud:
        made = User(cloud, vm={})
        made.up()
        yield made


class Keyboard(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self):
        """Say that somebody sits here."""
        return True


def typed(monkeypatch, user, text, *words):
    """Type `tpuctl down` and the answer to its question."""
    monkeypatch.setattr(sys, "stdin", Keyboard(f"{text}\n"))
    return user.run("down", *words)


def test_down_says_what_ends_an_hour(user):
    """The sum is that of what exists, as `plan` has it; afterwards nothing is left to end."""
    hour = user.run("plan", "--json").document["price"]["billed_usd_hour"]
    said = user.run("down", "--yes", "--json")
    assert said.document["saved_usd_hour"] == pytest.approx(hour, abs=0.0001)
    assert f"this ends about {hour:.2f} USD an hour" in said.err
    again = user.down()
    assert "this ends" not in again.err


def test_the_machines_go_for_a_yes(user, monkeypatch):
    """They can be made again."""
    assert typed(monkeypatch, user, "y").code == 0
    assert user.cloud.in_use() == []
    assert user.cloud.buckets()


@pytest.mark.parametrize("answer", ["y", "yes", "", "demo2"])
def test_the_data_does_not_go_for_a_yes(user, monkeypatch, answer):
    """Nothing at all is deleted for any other word than the name."""
    before = user.cloud.mutations()
    said = typed(monkeypatch, user, answer, "--delete-data")
    assert (said.code, user.cloud.mutations()) == (1, before)
    assert "Type demo to go on" in said.err
    assert "nothing was changed" in said.err


def test_the_data_goes_for_the_name(user, monkeypatch):
    """Who types the name of the deployment means it."""
    assert typed(monkeypatch, user, "demo", "--delete-data").code == 0
    assert (user.cloud.in_use(), user.cloud.buckets()) == ([], [])


def test_a_vm_of_our_label_where_nobody_looks_is_told_with_its_command_and_stays(user):
    """It is not of this record: the command leaves with 5, and what it does name is gone."""
    stray_vm(user.cloud, "us-east5-a")
    said = user.run("down", "--yes")
    assert said.code == 5
    command = "gcloud compute instances delete demo-vm --zone us-east5-a --project local-project"
    assert said.err.count(command) == 2
    assert "carries our label, and neither file nor record names its zone: it stays" in said.err
    assert user.cloud.in_use() == []
    assert list(user.cloud.vms()) == ["demo-vm"]
