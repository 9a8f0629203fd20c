"""What `down` says and asks before it deletes."""

import sys
import time
from dataclasses import replace

import pytest

from orchestrator.app.down import Down
from orchestrator.app.help import code_meaning
from orchestrator.cli.views.down import show
from orchestrator.cli.views.help import code_text
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.checksum import verified
from orchestrator.domain.remote import Host
from orchestrator.domain.status import DeploymentState
from orchestrator.ssh.connect.pinned_keys import recall, remember
from orchestrator.ssh.connect.ssh_settings import KNOWN_HOSTS
from tests.cli.cli_kit import Terminal, stray_vm
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer whose deployment is up."""
    with VirtualCloud(tmp_path).open() as cloud:
        made = User(cloud, vm={})
        made.up()
        yield made


def typed(monkeypatch, user, text, *words):
    """Type `tpuctl down` and the answer to its question."""
    monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))
    return user.run("down", *words)


def test_down_says_what_ends_an_hour(user):
    """The sum is that of what exists, as `plan` has it; afterwards nothing is left to end."""
    price = user.run("plan", "--json").document["price"]
    hour, most = price["billed_usd_hour"], sum(line["upper_usd"] for line in price["lines"])
    said = user.run("down", "--yes", "--json")
    assert said.document["ended_usd_hour"] == pytest.approx(hour, abs=0.0001)
    assert f"this ends about {hour:.2f} to {most:.2f} USD an hour" in said.err
    again = user.down()
    assert "this ends" not in again.err


def test_down_forgets_the_host_keys_of_the_machines_that_it_has_deleted(user):
    """A VM of the same name that the next `up` makes shows other keys, which is no reason for a warning."""
    folder = user.state / "gcp" / "local-project" / "demo" / KNOWN_HOSTS
    remember(folder, Host("demo-vm", "127.0.0.1", ("ssh-ed25519 A",)))
    user.run("down", "--yes", kill=("compute.instances.delete", "before"))
    assert recall(folder, "demo-vm") == ("ssh-ed25519 A",), "the VM is still there"
    user.down()
    assert recall(folder, "demo-vm") == ()


def test_the_machines_go_for_a_yes(user, monkeypatch):
    """They can be made again."""
    assert typed(monkeypatch, user, "y").code == 0
    assert user.cloud.in_use() == []
    assert user.cloud.buckets()


def test_a_job_that_runs_is_named_before_the_question(user, monkeypatch):
    """The list alone says READY of a TPU whose job is done, and of one that is at step 300 of 1000."""
    user.edit(job__target_steps=1000)
    user.watch(200)
    worker = user.run("status", "--json").document["workers"][0]
    assert worker["phase"] == "run"
    said = typed(monkeypatch, user, "n")
    line = f"  the job runs and is not done: step {worker['step']} of 1000, newest checkpoint step "
    assert f"{line}{worker['checkpoint_step']}\n" in said.err
    assert said.err.index(line) < said.err.index("Delete the machines?")
    user.cloud.model.preempt("demo-tpu-g1", notice=False)
    assert "the job runs" not in typed(monkeypatch, user, "n").err, "its TPU is gone"


@pytest.mark.parametrize("answer", ["y", "yes", "", "demo2"])
def test_the_data_does_not_go_for_a_yes(user, monkeypatch, answer):
    """Nothing at all is deleted for any other word than the name."""
    before = user.cloud.mutations()
    said = typed(monkeypatch, user, answer, "--delete-data")
    assert (said.code, user.cloud.mutations()) == (1, before)
    assert "Type 'demo' to confirm" in said.err
    assert "nothing was changed" in said.err


def test_the_data_goes_for_the_name(user, monkeypatch):
    """Who types the name of the deployment means it, and knows by then what else needs the data."""
    said = typed(monkeypatch, user, "demo", "--delete-data")
    assert said.code == 0
    shown = said.err + said.out
    assert shown.index("`tpuctl report` needs these data") < shown.index("Type 'demo' to confirm")
    assert (user.cloud.in_use(), user.cloud.buckets()) == ([], [])


def test_a_vm_of_our_label_in_an_unlisted_zone_is_named_with_its_command_and_stays(user):
    """It is not of this record: the command leaves with 5, and what it does name is gone."""
    stray_vm(user.cloud, "us-east5-a")
    said = user.run("down", "--yes")
    assert said.code == 5
    command = "gcloud compute instances delete demo-vm --zone us-east5-a --project local-project"
    assert said.err.count(command) == 2
    assert "carries our label, and neither file nor record names its zone: it stays" in said.err
    assert user.cloud.in_use() == []
    assert list(user.cloud.vms()) == ["demo-vm"]


def test_down_says_what_was_spent_and_saved(user):
    """The sums are those of `cost` a moment before, and again when all is gone already."""
    user.cloud.wait(3600)
    user.watch(60)
    cost = user.run("cost", "--json").document
    found = user.run("down", "--yes", "--json").document
    assert found["usd"] == pytest.approx(cost["usd"] - stored(cost), rel=0.1)
    assert found["saved_usd"] == pytest.approx(found["on_demand_usd"] - found["usd"])
    again = user.down()
    assert "It cost about" in again.err
    most = int(100 * found["saved_usd"] / found["on_demand_usd"])
    least = int(100 * found["lower_saved_usd"] / found["on_demand_usd"])
    assert least < most
    assert f"so {least} to {most}% saved" in again.err


def test_fetch_says_that_the_data_was_deleted_on_purpose_and_when(user):
    """The cloud knows only that there is no such bucket, and of a name nothing is known any more."""
    user.watch(60)
    user.down("--delete-data")
    day = time.strftime("%Y-%m-%d", time.gmtime(user.cloud.clock.now()))
    for words in ((), ("demo",), ("--uncommitted",)):
        said = user.run("checkpoints", "fetch", *words)
        reported = " ".join(said.err.split())
        assert f"nothing to fetch: `tpuctl down --delete-data` deleted the data of demo on {day}" in reported
        assert (said.code, "TPU-404" in reported, "tpuctl cost demo" in reported) == (1, True, True)


@pytest.mark.parametrize(
    "words",
    [
        ("explain",), ("explain", "demo"), ("status", "demo"), ("report", "demo"), ("checkpoints",), ("logs",),
        ("logs", "--events"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_says_in_the_same_sentence_that_the_data_was_deleted(user, words):
    """Also of a name, of which only the bill is known any more."""
    user.watch(60)
    user.down("--delete-data")
    day = time.strftime("%Y-%m-%d", time.gmtime(user.cloud.clock.now()))
    said = user.run(*words)
    reported = " ".join((said.out + said.err).split())
    assert f"`tpuctl down --delete-data` deleted the data of demo on {day}" in reported
    assert "bucket does not exist" not in reported


def test_a_deployment_whose_spec_is_damaged_is_not_called_deleted(user):
    """An earlier one of its name was; this one has a TPU that costs money."""
    user.watch(60)
    user.down("--delete-data")
    user.up()
    [spec] = (user.state / "gcp").glob("*/demo/spec.json")
    spec.write_text("{}")
    said = user.run("status", "demo")
    assert said.code == 2
    assert "what is kept of demo cannot be read" in said.err
    assert "deleted the data" not in said.err


def test_nothing_is_asked_where_nothing_is_to_be_deleted(user, monkeypatch):
    """No machine is there, and the data is kept."""
    user.down()
    said = typed(monkeypatch, user, "n")
    assert (said.code, "there are no machines" in said.err, "Delete the machines?" in said.err) == (
        0, True, False,
    )  # fmt: skip


def test_a_list_that_fails_counts_as_machines(user, monkeypatch):
    """What cannot be listed may exist, so it is asked for as if it did."""
    user.down()
    user.cloud.distort = lambda method, response: (
        replace(response, status=503) if method == "tpu.nodes.list" else response
    )
    said = typed(monkeypatch, user, "n")
    assert "there are no machines" not in said.err
    assert (said.code, "Delete the machines?" in said.err) == (1, True)


def stored(cost):
    """Return what a cost has for storage, which `down` does not look at."""
    return sum(item["usd"] for item in cost["items"] if item["what"] == "storage")


def test_down_takes_no_unknown_price_for_zero(user, monkeypatch):
    """Without the price of the TPU there is no sum and no saving, and the TPU is named."""
    user.watch(60)
    nothing = {"tpu_price": lambda *_, **__: None}
    monkeypatch.setattr(Catalog, "tpu_price", nothing["tpu_price"])
    status = " ".join(user.run("status").out.split())
    assert "at least" in status
    assert "no price is known for: TPU v5litepod-8" in status
    said = user.down()
    assert "It cost at least" in said.err
    assert "no price is known for: TPU v5litepod-8" in said.err
    assert "saved" not in said.err
    assert user.run("cost", "--json").document["saved_usd"] is None


def test_what_was_spent_is_known_when_the_data_is_gone(user):
    """`cost` shows it by the file and by the name, and the next deployment of the name begins at zero."""
    user.watch(3600)
    found = user.run("down", "--yes", "--delete-data", "--json").document
    for words in (["cost"], ["cost", "demo"]):
        said = user.type(*words, "--json") if "demo" in words else user.run(*words, "--json")
        assert said.document["usd"] == pytest.approx(found["usd"])
        assert said.document["deleted_at"]
    cost = user.run("cost").out
    assert "deleted with its data on" in cost
    assert "Nothing exists now that is billed by the hour." in cost
    assert "before ttl" not in cost
    body = user.run("status", "--json").document
    assert (body["up"], body["deleted_at"]) == (False, said.document["deleted_at"])
    assert body["usd"] == pytest.approx(found["usd"], abs=0.0001)
    assert "state        deleted with its data" in user.run("status").out.splitlines()
    assert (
        after_cost(user) == "next `tpuctl up` starts over, with a cost from 0; `tpuctl cost` keeps this sum"
    )
    report = user.run("report", "--output", str(user.folder / "r.html"))
    assert (report.code, "tpuctl cost" in report.err) == (2, True)
    user.up()
    cost = user.run("cost", "--json").document
    assert cost["usd"] < found["usd"] / 2
    assert [one["usd"] for one in cost["earlier"]] == [pytest.approx(found["usd"])]
    # Directly below the sum, which begins at zero.
    first, second, *_ = user.run("cost").out.splitlines()
    assert "so far" in first
    assert second.startswith("Not in it: ")
    assert "for an earlier deployment" in second


def after_cost(user):
    """Return the lines of `status` after that of the cost."""
    text = " ".join(user.run("status").out.split())
    return text.partition("(an estimate, not a bill) ")[2]


def test_status_knows_what_remains_after_down(user):
    """`watch` would refuse, so it is named nowhere; only what can be continued or deleted is."""
    user.watch(60)
    user.down()
    assert after_cost(user) == (
        "next `tpuctl up` goes on; `tpuctl down --delete-data` deletes the data in the bucket too"
    )
    assert user.run("status", "--json").document["deleted_at"] is None
    user.up()
    assert user.run("status", "--json").document["up"]
    assert "tpuctl watch" in user.run("status").out


def phrases(user):
    """Return the state of the deployment in the words of each command that shows it."""
    page = user.folder / "r.html"
    # A deployment that was deleted has no page, and the refusal says why.
    reported = user.run("report", "--output", str(page))
    # As a document, because a narrow table folds a phrase.
    table = user.type("status", "--all", "--json").document
    said = {
        "status": user.run("status").out,
        "status --all": ", ".join(DeploymentState(row["state"]).phrase for row in table["deployments"]),
        "cost": user.run("cost").out.splitlines()[0],
        "report": reported.err if reported.code else page.read_text(),
        "explain": user.run("explain").out.splitlines()[0],
        "plan": user.run("plan").out,
    }
    return {name: " ".join(text.split()) for name, text in said.items()}


def test_every_command_has_the_same_words_for_the_state(user):
    """One value, one phrase: for a lost TPU, after `down`, and after the deletion of the data."""
    user.watch(60)
    assert {name for name, text in phrases(user).items() if "running" not in text} == set()
    user.cloud.model.preempt("demo-tpu-g1", notice=False)
    assert {name for name, text in phrases(user).items() if "TPU lost, no watcher" not in text} == set()
    documents = {
        name: user.run(name, "--json").document["state"] for name in ("status", "cost", "explain", "plan")
    }
    assert set(documents.values()) == {"tpu-lost"}
    user.down()
    assert {name for name, text in phrases(user).items() if "down, data kept" not in text} == set()
    assert "`down` has run" in phrases(user)["explain"]
    user.down("--delete-data")
    said = phrases(user)
    # No deployment is known here any more, so the table has no row for it.
    del said["status --all"]
    assert {name for name, text in said.items() if "deleted with its data" not in text} == set()


def test_a_damaged_bill_fails_no_command(user):
    """Past sums steer nothing: without them `cost` says what it knows."""
    user.watch(600)
    user.down("--delete-data")
    (bills,) = user.state.glob("*/*/demo.bills.json")
    bills.write_bytes(bills.read_bytes().replace(b"usd", b"used"))
    assert "has cost nothing yet" in user.run("cost").out
    assert user.down("--delete-data").code == 0


def test_a_bill_is_stored_under_the_keys_of_earlier_ones(user):
    """Fields are renamed, files are not: what a deleted deployment has cost stays readable."""
    user.watch(600)
    user.down("--delete-data")
    (path,) = user.state.glob("*/*/demo.bills.json")
    (bill,) = verified(path.read_bytes())["bills"]
    stored = bill["spending"]
    assert set(stored) == {
        "usd", "most_usd", "ondemand_usd", "items", "zones", "days", "uses", "unknown", "rate_usd",
        "upper_usd_hour", "ttl_left", "to_ttl_usd", "unwatched_ends",
        "budget_usd", "budget_lasts", "prices", "storage_gib", "caches_gib", "to_ttl_most_usd",
    }  # fmt: skip
    assert set(stored["items"][0]) == {"what", "zone", "machines", "seconds", "usd", "ondemand_usd"}
    line = stored["prices"]["lines"][0]
    assert set(line) == {
        "what", "meter", "spot_usd", "ondemand_usd", "billed_usd", "minor", "most_usd",
    }  # fmt: skip
    shown = user.run("cost", "--json").document
    assert (shown["usd"], shown["on_demand_usd"]) == (stored["usd"], stored["ondemand_usd"])
    assert shown["machines_upper_usd"] == stored["most_usd"]
    assert shown["upper_usd"] == pytest.approx(stored["most_usd"] + stored["uses"].get("storage", 0.0))
    assert (line["meter"], shown["price"]["lines"][0]["meter"]) == ("node", "tpu")
    assert shown["price"]["lines"][0]["on_demand_usd"] == pytest.approx(line["ondemand_usd"])


def test_the_report_tells_of_a_deployment_that_is_down(user):
    """It works whenever `status` does; the uses add up to the whole after a second lifetime too."""
    user.watch(1800)
    user.down()
    # The record holds the number that the next TPU gets; the output names those that existed.
    assert user.run("status", "--json").document["incarnation"] == 1
    assert user.run("report", "--output", str(user.folder / "r.html")).code == 0
    user.cloud.wait(10 * 3600)
    user.up()
    user.watch(1800)
    summary = user.run("report", "--output", str(user.folder / "r.html"), "--json").document["summary"]
    assert summary["wall_s"] < 3 * 3600
    cost = user.run("cost", "--json").document
    assert sum(cost["uses"].values()) == pytest.approx(cost["usd"])
    assert "recovering" not in cost["uses"]


def test_down_says_that_a_cost_is_not_known_until_it_has_observed_the_machines(tmp_path):
    """The only `up` was killed right after its first create, so no observation of the machine is recorded."""
    with VirtualCloud(tmp_path).open() as cloud:
        user = User(cloud, vm={})
        assert user.run("up", kill=("compute.instances.insert", "after")).code is None
        cloud.wait(3600)
        said = user.down()
    before, _, after = said.err.partition("what it has cost is not known yet")
    assert after
    assert ("It cost about" in before, "It cost about" in after) == (False, True)


def test_the_bucket_has_a_line_as_the_machines_have(user):
    """With the data it is what takes longest."""
    said = user.run("down", "--yes", "--delete-data")
    (name,) = [line.split()[2] for line in said.err.splitlines() if line.startswith("- bucket")]
    assert f"Deleting bucket {name} with all its data" in said.err
    assert "run it first" not in said.err, "the data is going already"


@pytest.mark.parametrize(
    ("bucket", "first"), [("", "nothing of demo is left"), ("kept", "no machine of demo is left")]
)
def test_the_local_cloud_ends_after_what_ran_on_it(bucket, first, capsys):
    """First that nothing is left, which is what was asked for; of data only where there is some."""
    show(Down("demo", (), bucket, 0.0, None, (), idle_cloud_stopped=True), unbilled=True, as_json=False)
    said = capsys.readouterr().err
    assert said.index(first) < said.index("was stopped")
    assert ("what is in its buckets stays" in said) == bool(bucket)


def test_the_sum_of_down_is_that_of_cost_after_it(tmp_path):
    """A TPU is billed while its deletion begins, too; a sum that grows after the end would be read as a mistake."""
    with VirtualCloud(tmp_path, latency="realistic").open() as cloud:
        user = User(cloud, vm={})
        user.up()
        user.watch(600)
        usd = user.run("down", "--yes", "--json").document["usd"]
        cost = user.run("cost", "--json").document
    assert usd == pytest.approx(cost["usd"] - cost["uses"].get("storage", 0.0), abs=1e-6)


def test_a_down_after_one_that_was_killed_ends_no_cost_of_machines_that_are_gone(user):
    """The record counts them until a `down` has recorded their end; the lists show none."""
    for call in ("tpu.nodes.delete", "compute.instances.delete"):
        user.run("down", "--yes", kill=(call, "after"))
        user.cloud.wait(600)
    assert (user.cloud.nodes(), user.cloud.vms()) == ({}, {})
    said = user.down()
    assert "there are no machines" in said.err
    assert "this ends about" not in said.err


@pytest.mark.parametrize("words", [[], ["--delete-data"], ["--json"]])
def test_down_asks_no_question_without_a_terminal(user, words):
    """It ends with 2 and says what it asks; the machines stay."""
    said = user.run("down", *words)
    text = said.out + said.err
    assert (said.code, "TPU-102" in text, "--yes" in text) == (2, True, True)
    question = "The data cannot be brought back." if "--delete-data" in words else "Delete the machines?"
    assert f"cannot ask without a terminal: {question}" in text
    assert user.cloud.in_use() == ["demo-tpu-g1"]


def test_down_without_machines_needs_no_terminal(user):
    """Nothing is asked on a terminal either: there is nothing to approve."""
    user.down()
    said = user.run("down")
    assert (said.code, "there are no machines" in said.err) == (0, True)


def test_the_page_about_nothing_to_push_to_covers_a_job_that_is_over(user):
    """The machines may still be there: it is no page for a deployment that is not up alone."""
    user.cloud.wait(900)
    user.cloud.machines.say("demo", phase="done")
    assert user.run("push", "--json").document["code"] == "TPU-130"
    page = " ".join(code_text(code_meaning("TPU-130"), 0).split())
    assert "or its job is over" in page
    assert "`tpuctl down` deletes the machines" in page
