"""What a self-test looks at by itself: chips, a refusal for quota, what is left in any zone."""

import subprocess

import pytest

from orchestrator.app.selftest.proofs import COUNT_CHIPS, StageError, chips_text, machine_facts
from orchestrator.google import project_reader
from orchestrator.scripts.shipped import remote_script
from tests.cli.cli_kit import stray_vm
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User
from tests.scenarios.test_selftest import WORDS, ends, stages

ANSWERS = {"chips": "4", "devices": "4", "opened": "4", "libtpu": "yes"}


def test_the_program_that_looks_for_chips_runs_with_a_bare_python():
    """It lists what this computer has; a word that it does not ask for is left out."""
    said = subprocess.run(
        ["bash", "-c", remote_script(COUNT_CHIPS).text], capture_output=True, text=True, check=True
    ).stdout
    reported = machine_facts(said + "name=secret")
    assert set(reported) == {"chips", "devices", "opened", "libtpu"}
    assert "chips on PCI" in chips_text(reported, 0, local=not int(reported["opened"]))


def test_on_the_service_all_chips_must_be_there_and_one_must_open():
    """By PCI or by device files: what a new generation shows is not known."""
    assert chips_text(ANSWERS, 4, local=False) == "4 chips on PCI, 4 devices, 4 of them open"
    assert chips_text({**ANSWERS, "chips": "0"}, 4, local=False)
    for wrong in ({"opened": "0"}, {"chips": "1", "devices": "1"}, {"chips": "0", "devices": "0"}):
        with pytest.raises(StageError, match="4 chips in each machine"):
            chips_text({**ANSWERS, **wrong}, 4, local=False)
    with pytest.raises(StageError, match="said nothing"):
        chips_text({}, 4, local=True)


def test_the_local_cloud_does_not_claim_a_chip():
    """It says that there is none."""
    none = {"chips": "0", "devices": "0", "opened": "0"}
    assert chips_text(none, 4, local=True).endswith("machines of the local cloud have no accelerator")


@pytest.fixture
def cloud(tmp_path):
    """Give a new project."""
    with VirtualCloud(tmp_path, fresh_project=True).open() as made:
        ends(made)
        yield made


def test_a_type_beyond_the_quota_is_asked_for_and_refused(cloud, monkeypatch):
    """The limit of this project is read first; nothing is made."""
    monkeypatch.setattr(project_reader, "tpu_limits", lambda clients, quota, zones: dict.fromkeys(zones, 4))
    said = User(cloud).type(*WORDS)
    assert stages(said)["quota"] == "ok"
    assert "v5litepod-8 is refused, the limit is 4: TPU-350" in said.err
    assert not [call for call in cloud.log if call.status < 400 and "beyond" in call.name]


@pytest.mark.parametrize("limit", [{}, {"europe-west4-b": -1}, {"europe-west4-b": 8}])
def test_where_the_limit_is_not_known_or_excludes_nothing_no_type_is_asked_for(cloud, monkeypatch, limit):
    """What might be granted would cost; a stage that is left out is no failure."""
    monkeypatch.setattr(project_reader, "tpu_limits", lambda clients, quota, zones: limit)
    said = User(cloud).type(*WORDS)
    assert (stages(said)["quota"], stages(said)["tpu"]) == ("skipped", "ok")
    assert not [call for call in cloud.log if "beyond" in call.name]


def test_leftovers_in_another_zone_are_named(cloud):
    """A VM of the self-test's label far away: 5, with its zone."""
    said = User(cloud).type(
        *WORDS, "--no-tpu", meanwhile={"compute.instances.delete": lambda: stray_vm(cloud, "us-east5-a")}
    )
    name = next(iter(cloud.vms()))
    assert (said.code, f"VM {name} in us-east5-a" in said.err) == (5, True)
