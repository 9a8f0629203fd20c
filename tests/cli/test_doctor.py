"""tpuctl doctor on this computer: without a network, with a broken file, and against the local cloud."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from orchestrator.advice.doctor.facts import DoctorFinding, Group
from orchestrator.app.doctor.google_facts import clock_ahead, find_login, side_by_side
from orchestrator.app.this_computer.login_here import gcloud_settings
from orchestrator.cli.views.doctor import EMULATED, show
from orchestrator.domain.level import Level
from orchestrator.domain.observation import Present, Unknown
from orchestrator.errors import Retry
from tests.cli.cli_kit import document, environment, here

FILE = """\
name: mine
project: my-project
tpu: {type: v5litepod-4, zones: [europe-west4-b]}
job: {command: python3 train.py}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be in a folder with a deployment file; state and credentials are this test's own."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "tpuctl.yaml").write_text(FILE)
    (tmp_path / "w" / "train.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    # The service is a port of this computer where nobody listens: no test leaves it.
    monkeypatch.setattr("orchestrator.app.doctor.google_facts.STORAGE", "http://127.0.0.1:9")
    return tmp_path / "w"


def findings_of(out):
    """Return level, message and hint by the rule."""
    return {c["rule"]: (c["level"], c["message"], c["hint"]) for c in document(out)["findings"]}


def test_without_network_and_login_it_answers(folder, capsys):
    """The missing login is wrong; everything that follows from it is unknown, and said to be so."""
    code, out, err = here(capsys, "doctor", "--json")
    found = findings_of(out)
    assert (code, err) == (1, "")
    assert [name for name, (level, _, _) in found.items() if level == "stop"] == ["credentials"]
    assert "gcloud auth application-default login" in found["credentials"][2]
    assert found["tpu-api"][:2] == ("unknown", "not asked: there is no login")
    assert found["clock"][0] == "unknown"
    assert found["file"][0] == found["source"][0] == found["state-folder"][0] == "ok"


def test_people_get_words_of_eighty_columns(folder, capsys, monkeypatch):
    """No colour where nobody looks at a terminal, and the sum at the end."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = here(capsys, "doctor")
    assert code == 1
    wide = [line for line in out.splitlines() if len(line) > 80]
    # A path that is longer than a line is not broken, so that it can be copied.
    assert [line for line in wide if len(line.split()[0]) < 76] == []
    assert str(folder.parent) in out, "nor is one that fits a line of its own"
    assert "\x1b" not in out
    assert "fix: gcloud auth application-default login" in out
    assert "1 failed" in out.splitlines()[-1]


def test_a_broken_file_is_a_finding_and_hides_nothing_else(folder, capsys):
    """The first finding is shown with its place, the number of the others beside it."""
    (folder / "tpuctl.yaml").write_text(FILE.replace("zones:", "zonse:").replace("command:", "comand:"))
    code, out, _ = here(capsys, "doctor", "--json")
    level, text, _ = findings_of(out)["file"]
    assert (code, level) == (1, "stop")
    assert text.startswith("tpuctl.yaml:")
    assert "more)" in text
    assert findings_of(out)["python"][0] == "ok"


def test_without_a_file_it_still_looks_at_the_rest(folder, capsys):
    """Before `init` there is nothing to blame."""
    (folder / "tpuctl.yaml").unlink()
    _, out, _ = here(capsys, "doctor", "--json")
    assert findings_of(out)["file"][0] == "unknown"
    assert findings_of(out)["disk"][0] == "ok"


def test_fix_mends_our_own_files_and_says_what_it_did(folder, capsys, tmp_path):
    """Permissions are set right, what a dead local cloud left is gone; a second run has nothing to do."""
    key = tmp_path / "state" / "gcp" / "my-project" / "mine" / "id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text("secret")
    key.chmod(0o644)
    key.parents[2].chmod(0o777)
    daemon = tmp_path / "cloud" / "daemon.json"
    daemon.parent.mkdir()
    daemon.write_text(json.dumps({"pid": 1, "started": 1, "endpoint": "x"}))
    _, out, _ = here(capsys, "doctor", "--json")
    before = findings_of(out)
    assert (before["ssh-keys"][0], before["state-folder"][0], before["local-daemon"][0]) == (
        "stop", "stop", "warn",
    )  # fmt: skip
    assert key.stat().st_mode & 0o777 == 0o644
    _, out, _ = here(capsys, "doctor", "--fix", "--json")
    after = findings_of(out)
    assert (after["ssh-keys"][0], after["state-folder"][0], after["local-daemon"][0]) == ("ok", "ok", "ok")
    assert len(document(out)["fixed"]) == 3
    assert (key.stat().st_mode & 0o777, key.parents[2].stat().st_mode & 0o777) == (0o600, 0o700)
    assert not daemon.exists()
    _, out, _ = here(capsys, "doctor", "--fix", "--json")
    assert document(out)["fixed"] == []


def test_the_login_is_read_from_its_file(folder, tmp_path, monkeypatch):
    """Kind and account are shown without a network; a path without a file is a permanent error."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps({"type": "service_account", "client_email": "robot@p.iam"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    found = find_login()
    assert isinstance(found, Present)
    assert (found.value.kind, found.value.account) == ("service account", "robot@p.iam")
    path.write_text("{}")
    assert find_login().retry is Retry.PERMANENT
    path.unlink()
    assert find_login().retry is Retry.PERMANENT


def test_gclouds_own_settings_are_read_from_its_files(folder, tmp_path, monkeypatch):
    """The active configuration counts, and the variables before it."""
    assert gcloud_settings() == ("", "")
    place = tmp_path / "gcloud" / "configurations"
    place.mkdir(parents=True)
    (place.parent / "active_config").write_text("work\n")
    (place / "config_work").write_text("[core]\naccount = me@example.org\nproject = 50%\n")
    assert gcloud_settings() == ("me@example.org", "50%")
    monkeypatch.setenv("CLOUDSDK_CORE_PROJECT", "other")
    assert gcloud_settings() == ("me@example.org", "other")


def test_a_question_that_hangs_or_breaks_delays_no_other():
    """The others' answers count, the late one is unknown, and the command does not wait for it."""
    began = time.monotonic()
    found = side_by_side(
        {
            "late": lambda: time.sleep(30),  # A thread that hangs is the case; nobody waits for its end.
            "broken": lambda: 1 / 0,
            "fine": lambda: Present(1),
        },
        timeout=0.3,
    )
    assert time.monotonic() - began < 25
    assert found["fine"] == Present(1)
    assert isinstance(found["late"], Unknown)
    assert "no answer within 0.3 s" in found["late"].message
    assert "ZeroDivisionError" in found["broken"].message


@pytest.mark.e2e
def test_against_the_local_cloud_the_official_clients_ask(folder, capsys, monkeypatch):
    """Each question has its answer; an API that is off and too small a quota are found, with the way out."""
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    code, out, _ = here(capsys, "doctor", "--json")
    assert findings_of(out)["tpu-api"] == ("unknown", "not asked: the local cloud does not run", "")
    assert code == 0
    assert not os.path.exists(os.environ["TPUCTL_LOCAL_DIR"])  # noqa: PTH110 - the folder must not be made
    reported = ("--quota", "CPUS@europe-west4=1", "--disable-api", "tpu.googleapis.com")
    assert here(capsys, "local", "start", "--latency", "instant", *reported)[0] == 0
    try:
        code, out, _ = here(capsys, "doctor", "--json")
        found = findings_of(out)
        assert code == 1
        assert {name for name, (level, _, _) in found.items() if level == "stop"} == {
            "vm-quota", "tpu-api", "zones", "runtime",
        }  # fmt: skip
        assert "gcloud services enable tpu.googleapis.com" in found["tpu-api"][2]
        assert found["vm-quota"][1] == "0 of 1 CPUS in use, the VM takes 2"
        assert found["clock"] == ("ok", "within 1 s", "")
        for name in ("compute-api", "storage-api", "firewall", "private-access", "bucket", "vm-image"):
            assert found[name][0] == "ok"
    finally:
        assert here(capsys, "local", "reset")[0] == 0
    assert here(capsys, "local", "start", "--latency", "instant")[0] == 0
    try:
        code, out, _ = here(capsys, "doctor", "--json")
        assert (code, findings_of(out)["zones"]) == (0, ("ok", "v5litepod-4 in europe-west4-b", ""))
        taken = "v5litepod-4 takes 4 chips of TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"
        assert findings_of(out)["tpu-quota"] == ("ok", f"{taken}, the limit is 4", "")
        larger = ("--set", "tpu.runtime=no-such", "--set", "tpu.type=v5litepod-8")
        _, out, _ = here(capsys, "doctor", "--json", *larger)
        assert findings_of(out)["runtime"][0] == "stop"
        assert findings_of(out)["tpu-quota"][0] == "stop"
        assert "v5litepod-4 would fit" in findings_of(out)["tpu-quota"][2]
    finally:
        assert here(capsys, "local", "reset")[0] == 0


def test_the_clock_is_compared_with_the_date_of_an_answer():
    """A port where nobody listens gives no time."""
    assert isinstance(clock_ahead("http://127.0.0.1:9"), Unknown)


@pytest.mark.parametrize(("unbilled", "title"), [(True, EMULATED), (False, "Google Cloud\n")])
def test_the_local_cloud_says_nothing_of_the_own_account(unbilled, title, capsys):
    """`ok  tpu-api` below "Google Cloud" would read as if the own project were fine."""
    found = [DoctorFinding("tpu-api", Group.GOOGLE, Level.OK, "tpu.googleapis.com answers")]
    show(found, (), as_json=False, unbilled=unbilled)
    out = capsys.readouterr().out
    assert title in (" ".join(out.split()) if unbilled else out)


def test_checks_with_the_same_unknown_answer_are_one_row(capsys):
    """A screen of questions that nobody asked hides the one answer that matters; `--json` has each."""
    why = "not asked: there is no login"
    names = ("tpu-api", "compute-api", "zones")
    found = [DoctorFinding(name, Group.GOOGLE, Level.UNKNOWN, why) for name in names]
    found.insert(1, DoctorFinding("project", Group.GOOGLE, Level.STOP, "none", "name one"))
    found += [DoctorFinding(name, Group.COMPUTER, Level.OK, "there") for name in ("git", "ssh")]
    show(found, (), as_json=False)
    shown = capsys.readouterr().out
    assert shown.count(why) == 1
    assert f"unknown 3 rules         {why}: tpu-api, compute-api," in shown
    assert [name for name in ("project", "git", "ssh") if f" {name} " not in shown] == []
    assert shown.splitlines()[-1] == "2 passed, 1 failed, 3 unknown"
    show(found, (), as_json=True)
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 6


def test_on_a_terminal_it_names_the_encoding_of_the_terminal(folder, tmp_path):
    """The live line, which replaces the output stream while the rules run, is not taken for the terminal."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "orchestrator", "doctor"]
    with subprocess.Popen(
        words, env=environment(TERM="xterm", LC_ALL="C.UTF-8", TPUCTL_STATE_DIR=str(tmp_path / "state")),
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        text = ""
        with suppress(OSError):
            while part := os.read(ours, 65536):
                text += part.decode()
    os.close(ours)
    assert re.search(r"locale\W[^\n]*utf-8", text)
    assert "bars are drawn in ASCII" not in text
