"""What `up` says of money before it makes a machine, and when it asks."""

import sys

import pytest

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.text.amounts import at_most_text, span_text
from tests.cli.cli_kit import Terminal
from tests.engine.engine_lab import QUOTA
from tests.kit.user import User


@pytest.fixture
def user(cloud):
    """Give a computer whose deployment has a VM, a budget and a time to live of two days."""
    return User(cloud, vm={}, watch__budget_usd=50, watch__ttl="2d")


@pytest.fixture
def typed(monkeypatch):
    """Type at a terminal: keyboard and screen."""

    def answer(user, text, *words):
        with monkeypatch.context() as at_terminal:
            at_terminal.setattr(sys, "stdin", Terminal(f"{text}\n"))
            at_terminal.setattr("tests.kit.user.StringIO", Terminal)
            return user.run(*words)

    return answer


def test_up_tells_the_price_an_hour_and_until_ttl_once(user):
    """The sums are those of `plan`; without a terminal nobody is asked, and a second `up` shows no price."""
    price = user.run("plan", "--json").document["price"]
    said = user.up()
    hour, ttl = price["billed_usd_hour"], price["to_ttl_upper_usd"]
    assert said.err.count("Price:") == 1
    assert f"Price: {hour:.2f} " in said.err
    reported = f"Running at this price until watch.ttl (2d): {at_most_text(ttl)}, excluding storage"
    assert reported in said.err, "to the cent, though `up` takes some seconds before it says so"
    assert reported in user.run("plan").out
    assert "`tpuctl watch` ends it at 50 USD" in said.err
    assert said.err.index("Price:") < said.err.index("Creating ")
    assert "Price:" not in user.up().err


def test_up_warns_of_a_job_that_saves_where_nothing_is_committed_before_it_asks(user, typed):
    """The finding is that of `plan`; it is there in time for a no, and gone with its cause."""
    found = "nothing in the job reads TPUCTL_CHECKPOINT_DIR: a preemption loses every step"
    assert found in " ".join(user.run("plan").out.split())
    said = typed(user, "n", "up")
    reported = " ".join(said.err.split())
    assert (said.code, found in reported, "a symbolic link to it" in reported) == (1, True, True)
    assert reported.index(found) < reported.index("Price:") < reported.index("Go on?")
    user.write("train.py", "import os\nprint(os.environ['TPUCTL_CHECKPOINT_DIR'])\n")
    assert "a preemption loses" not in user.up().err


def test_up_names_a_program_that_is_not_there_before_it_asks(user, typed):
    """A machine that starts nothing is billed all the same."""
    (user.folder / "src" / "train.py").unlink()
    said = typed(user, "n", "up")
    reported = " ".join(said.err.split())
    assert "job.command: it starts train.py, and the source folder pushes no such file" in reported
    assert reported.index("it starts train.py") < reported.index("Go on?")


def test_a_quota_that_is_too_small_names_what_is_billed_meanwhile(cloud, user):
    """The VM is there by then: "nothing was changed" would be wrong, and cost money."""
    cloud.change(quotas={(QUOTA, "europe-west4-b"): 0, (QUOTA, "europe-west4-a"): 0})
    said = user.run("up")
    assert said.code == 4
    assert "state: VM demo-vm: billed; `tpuctl down` removes what was made" in said.err


def test_the_price_comes_before_the_wait_for_the_quota_that_the_old_tpu_holds(cloud, user):
    """Once the quota is known to have no room, the old TPU is deleted before the new one is asked for."""
    cloud.change(quotas={(QUOTA, "europe-west4-b"): 8})
    user.up()
    for number in (1, 2, 3):
        cloud.model.preempt(f"demo-tpu-g{number}", notice=False)
        said = user.up().err
        # One cause has one text: before the quota has refused, after it, and once it is known to have no room.
        assert said.split("Creating TPU")[-1].splitlines()[0].endswith(f": it replaces TPU #{number}")
    assert said.index("Price:") < said.index("the old one holds the quota") < said.index("Creating TPU")
    assert said.count("Price:") == 1
    assert "TPU v5litepod-8 spot" in said


def test_a_no_changes_nothing_and_a_yes_goes_on(cloud, user, typed):
    """The question comes before the bucket, the lease and the record: a no leaves no trace."""
    said = typed(user, "n", "up")
    assert (said.code, cloud.mutations(), cloud.buckets()) == (1, [], [])
    assert "nothing was changed" in said.err
    assert said.err.count("Go on?") == 1
    said = typed(user, "y", "up")
    assert (said.code, list(cloud.nodes())) == (0, ["demo-tpu-g1"])
    assert said.err.count("Price:") == said.err.count("Go on?") == 1


@pytest.mark.parametrize("word", ["--yes", "--json"])
def test_with_yes_or_from_a_program_no_question_is_asked(cloud, user, typed, word):
    """The price is reported all the same."""
    said = typed(user, "n", "up", word)
    assert (said.code, "Go on?" in said.err, "Price:" in said.err) == (0, False, True)
    assert list(cloud.nodes()) == ["demo-tpu-g1"]


def test_the_local_cloud_asks_nothing_since_nothing_is_billed(cloud, user, typed):
    """It shows what the same would cost, and goes on: there is no money to agree to."""
    try:
        said = typed(user, "n", "up", "--cloud", "local")
    finally:
        # The command starts the local cloud of this computer beside the one in this process.
        assert user.type("local", "stop", "--json").document["stopped"]
    assert (said.code, "Go on?" in said.err) == (0, False)
    assert "an hour (nothing is billed on the local cloud)" in said.err
    assert list(cloud.nodes()) == ["demo-tpu-g1"]


def test_what_makes_no_machine_asks_nothing(cloud, user, typed):
    """New code for a running job costs what it costs already; a TPU that was lost is asked about again."""
    user.up()
    assert "Go on?" not in typed(user, "n", "up").err
    cloud.model.preempt("demo-tpu-g1", notice=False)
    cloud.wait(60)
    said = typed(user, "n", "up")
    assert (said.code, "Go on?" in said.err) == (1, True)


def test_bucket_and_vm_alone_have_its_own_price(user):
    """Without a TPU it lists the VM, its address and its disk."""
    said = user.run("up", "--no-tpu")
    assert "VM e2-small" in said.err
    assert "TPU v5" not in said.err[: said.err.index("Creating ")]
    lines = user.run("plan", "--offline", "--json").document["price"]["lines"]
    hour = sum(line["billed_usd"] for line in lines if line["what"].startswith("VM"))
    assert f"Price: {hour:.4f} USD an hour" in said.err
    again = user.run("up", "--no-tpu", "--json").document
    assert again["state"] == "no-tpu", "what runs is not said of a deployment without a TPU"


def test_an_unknown_price_is_not_taken_for_zero(cloud, monkeypatch):
    """The known part is a lower bound, the sum until ttl is not known."""
    user = User(cloud, watch__ttl="2d")
    monkeypatch.setattr(Catalog, "tpu_price", lambda *_, **__: None)
    said = user.up()
    assert "Price: at least" in said.err
    assert "no price is known for: TPU v5litepod-8" in said.err
    assert "until ttl (2d): not known" in said.err


def test_a_plan_in_a_file_was_approved_before(user, typed):
    """Its price is reported, and nobody is asked again."""
    file = user.folder / "p.json"
    user.run("plan", "--output", str(file))
    user.cloud.acting.clear()
    said = user.type("up", str(file))
    assert (said.code, "Price:" in said.err, "Go on?" in said.err) == (0, True, False)


@pytest.mark.parametrize(
    ("budget", "ttl", "said"),
    [
        (50, "2d", "`tpuctl watch` ends it at 50 USD, after about "),
        (0.02, "2d", "`tpuctl watch` ends it at 0.02 USD, after about "),
        (5, "10m", "5 USD are not used up before watch.ttl ends it"),
    ],
)
def test_up_names_the_limit_that_comes_first(user, budget, ttl, said):
    """After 0.0 hours says nothing, and a budget that the ttl does not leave time for ends nothing."""
    user.edit(vm={}, watch__budget_usd=budget, watch__ttl=ttl)
    lasts = user.run("plan", "--json").document["price"]["budget_lasts_s"]
    after = span_text(lasts) if said.endswith(" ") else ""
    assert f"watch.budget_usd: {said}{after}\n" in user.run("up").err
    assert not after.startswith("0")
    assert ("; watch.ttl (10m) ends it before" in user.run("plan", "--offline").out) == (ttl == "10m")


@pytest.mark.parametrize(
    ("limits", "named"),
    [({"watch__ttl": "10m"}, "watch.ttl"), ({"watch__budget_usd": 0.05}, "watch.budget_usd")],
)
def test_the_limit_that_has_ended_it_is_the_one_to_raise(user, limits, named):
    """In the error, the status and the explanation."""
    user.edit(vm={}, **limits)
    user.up()
    ended = user.run("watch")
    assert (ended.code, f"next:  raise {named}, then run `tpuctl up`" in ended.err) == (7, True)
    assert user.run("status", "--json").document["limit_reached"] == named
    assert f"next         raise {named}, then: tpuctl up" in user.run("status").out
    assert f"do    raise {named}, then: tpuctl up" in user.run("explain").out
