"""On a machine of a rehearsal nothing is started that could reach the real service."""

import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.attempt.job_process import JobProcess
from orchestrator.agent.machine.emulator_guard import (
    NOWHERE,
    REQUIRED,
    check,
    for_job,
    for_setup,
    trusted,
    wrong_settings,
)
from orchestrator.contract.machine_errors import UnsafeError
from orchestrator.emulator.machines.environment import machine_environment
from orchestrator.emulator.machines.machine_settings import MachineSettings
from tests.emulator.machines_lab import machine

TEMPLATE = Path(__file__).parents[2] / "templates/startup.sh.j2"


@pytest.fixture
def given(tmp_path) -> dict[str, str]:
    """Return what a machine of the local cloud is given."""
    return environment_of(tmp_path, "http://127.0.0.1:81", "127.0.0.1", 80)


def environment_of(folder: Path, endpoint: str, address: str, port: int) -> dict[str, str]:
    """Return the environment of a machine, for an endpoint and a metadata server."""
    authorities = folder / "authorities.pem"
    authorities.write_text("")
    settings = MachineSettings(
        folder, "c", endpoint, 22, port, proxy="http://127.0.0.1:82", setup_proxy="http://127.0.0.1:83"
    )
    paths = dict.fromkeys(("files", "binaries", "temporary"), folder)
    return machine_environment(machine(address), settings, **paths, authorities=authorities)


def test_machine_of_the_local_cloud_has_all_it_needs(given):
    """The local cloud gives what the agent demands, and the startup script keeps it for cron."""
    assert wrong_settings(given) == []
    retained = re.search(r'^kept="([^"]*)"', TEMPLATE.read_text(), re.MULTILINE)[1].split()
    assert {name for name in REQUIRED if not name.startswith("CLOUDSDK_")} <= set(retained)


@pytest.mark.parametrize("name", REQUIRED)
def test_each_variable_must_be_there(given, name):
    """Absent or empty, it is named."""
    for environ in ({**given, name: ""}, {key: value for key, value in given.items() if key != name}):
        with pytest.raises(UnsafeError, match=f"{name} is missing.*run: tpuctl up"):
            check(environ)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com"),
        ("STORAGE_EMULATOR_HOST", "10.0.0.1:80"),
        ("TENSORSTORE_GCS_HTTP_URL", "http://127.0.0.1.example.org"),
        ("TENSORSTORE_GCS_HTTP_URL", "http://127.0.0.1:80@example.org"),
        ("GCE_METADATA_HOST", "metadata.google.internal"),
        ("https_proxy", "http://proxy.example.org:3128"),
        ("HTTPS_PROXY", "http://[::ffff"),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "https://tpu.googleapis.com/"),
        ("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "true"),
        ("NO_GCE_CHECK", "false"),
        ("CURL_CA_BUNDLE", "/no/such/file"),
        ("no_proxy", "localhost,*"),
        ("NO_PROXY", "localhost .googleapis.com"),
        ("no_proxy", "*.com:443"),
        ("no_proxy", "storage.googleapis.com"),
        ("REHEARSAL_NETWORK", "opne"),
    ],
)
def test_each_variable_must_lead_here(given, name, value):
    """A value that leads to another place is named, with the value."""
    with pytest.raises(UnsafeError, match=f"{name} is {re.escape(repr(value))}"):
        check({**given, name: value})


@pytest.mark.parametrize("name", ["TPUCTL_LOCAL_CLOUD", "TPUCTL_MACHINE"])
def test_one_rehearsal_mark_is_enough(given, name):
    """A machine that has lost one of its two marks is one of a rehearsal all the same."""
    with pytest.raises(UnsafeError):
        check({name: given[name]})


def test_the_environment_of_other_machines_is_not_changed():
    """A machine of Google's has none of these variables, or its owner's own."""
    environ = {"https_proxy": "http://proxy.example.org", "REHEARSAL_NETWORK": "open", "no_proxy": "*"}
    assert wrong_settings(environ) == []
    assert trusted(environ) == for_setup(environ) == for_job(environ) == environ


def test_own_calls_stay_here_whatever_the_job_says(given):
    """The refusal may be reported to the emulated bucket only."""
    bent = {**given, "STORAGE_EMULATOR_HOST": "https://storage.googleapis.com", "GCE_METADATA_HOST": ""}
    own = trusted(bent)
    assert own["STORAGE_EMULATOR_HOST"] == given["TPUCTL_LOCAL_CLOUD"]
    assert own["GCE_METADATA_HOST"] == given["GCE_METADATA_IP"]
    assert trusted({"TPUCTL_MACHINE": "c/m"})["STORAGE_EMULATOR_HOST"] == NOWHERE


def test_job_is_not_started_when_its_own_environment_is_unsafe(given, tmp_path):
    """The last gate is where the process is made: whoever starts one passes it."""
    trace = tmp_path / "trace"
    with pytest.raises(UnsafeError):
        JobProcess(tmp_path, f"touch {trace}", tmp_path, {**given, "no_proxy": "*"}, lambda _data: None)
    assert not trace.exists()


def in_rehearsal(lab, **changes):
    """Return a machine of the lab as one of a rehearsal; *changes* as for `lab.machine`."""
    one = lab.machine(**changes)
    host, _, port = lab.metadata.address.partition(":")
    given = environment_of(lab.folder, lab.url, host, int(port))
    del given["TPUCTL_ROOT"], given["PATH"]
    user = {key[1:]: value for key, value in changes.items() if key.startswith("_")}
    one.env = {**one.env, **given, **user}
    return one


@pytest.mark.parametrize(
    ("name", "value"),
    [("STORAGE_EMULATOR_HOST", ""), ("STORAGE_EMULATOR_HOST", "http://10.255.255.1"), ("no_proxy", "*")],
)
def test_agent_refuses_says_why_and_stays_down(lab, name, value):
    """The bucket learns of it, even when the variable would have led elsewhere; cron finds the stop file."""
    one = in_rehearsal(lab, SETUP="touch setup-ran", **{f"_{name}": value}).run_to_end()
    heartbeat = one.heartbeat()
    assert heartbeat["phase"] == "failed"
    assert name in heartbeat["message"]
    assert heartbeat["attempts"] == 0
    assert name in (one.root / "state/stop").read_text()
    assert not (one.root / "current").exists()
    assert lab.attempts() == []


SAVES = 'mkdir -p "$TPUCTL_CHECKPOINT_DIR/1"; touch "$TPUCTL_CHECKPOINT_DIR/1/COMPLETE"'


@pytest.mark.parametrize(("network", "port"), [("closed", "82"), ("open", "83")])
def test_setup_reaches_foreign_hosts_and_the_job_only_when_it_says_so(lab, network, port):
    """A setup installs from an index; a job that uploads or downloads elsewhere must name it."""
    shown = 'echo "$https_proxy $HTTP_PROXY" >"$TPUCTL_ROOT'
    one = in_rehearsal(
        lab, SETUP=f'{shown}/setup"', COMMAND=f'{shown}/job"; {SAVES}', _REHEARSAL_NETWORK=network
    ).run_to_end()
    assert one.heartbeat()["phase"] == "done"
    assert (one.root / "setup").read_text() == "http://127.0.0.1:83 http://127.0.0.1:83\n"
    assert (one.root / "job").read_text() == f"http://127.0.0.1:{port} http://127.0.0.1:{port}\n"


def test_exec_starts_other_services_under_the_same_rule(lab):
    """It becomes the program, or says what is wrong and starts nothing."""
    one = in_rehearsal(lab)

    def run(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = one.command("exec", *words, "--", "sh", "-c", "echo $https_proxy")
        environ = {**one.env, **changes}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)

    assert run().stdout == "http://127.0.0.1:82\n"
    assert run("--install").stdout == "http://127.0.0.1:83\n"
    refused = run(NO_GCE_CHECK="")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "NO_GCE_CHECK is missing" in refused.stderr
