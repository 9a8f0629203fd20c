"""The commands against a running local cloud, in the order in which people meet them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from filelock import FileLock

from orchestrator.domain.checksum import verified
from orchestrator.domain.lease import Holder
from tests.cli.cli_kit import document, environment, here
from tests.kit.waiting import until

pytestmark = pytest.mark.e2e
FILE = """\
name: mine
project: {project}
tpu: {{type: v5litepod-1, zones: [europe-west4-b]}}
vm: none
job: {{source: src, command: "echo hello; exec sleep 600"}}
watch: {{poll: 1s}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be in a folder with a deployment file for Google Cloud."""
    (tmp_path / "w" / "src").mkdir(parents=True)
    (tmp_path / "w" / "tpuctl.yaml").write_text(FILE.format(project="someone-elses"))
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


@pytest.mark.parametrize(
    "words", [["up"], ["watch"], ["status"], ["down", "--yes"], ["logs"], ["exec", "true"]]
)
def test_without_credentials_nothing_is_touched(words, folder, capsys, monkeypatch):
    """Exit code 3, what to do next, in JSON too; no thread waits for a metadata server."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    began = time.monotonic()
    code, out, _ = here(capsys, words[0], "--json", *words[1:])
    found = document(out)
    assert (code, found["code"]) == (3, "TPU-201")
    assert "gcloud auth application-default login" in found["hint"]
    assert time.monotonic() - began < 60
    assert list((folder / "src").iterdir()) == []


@pytest.mark.parametrize("words", [["up"], ["watch"], ["down", "--yes"]])
def test_a_second_tpuctl_names_who_holds_the_deployment(words, folder, capsys, monkeypatch, tmp_path):
    """Exit code 6 before any call; whoever came first is named."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "state" / "gcp" / "someone-elses" / "mine"
    place.mkdir(parents=True)
    (place / "holder").write_bytes(Holder("1", "me@here", "demo", 0.0, pid=4711).to_json())
    with FileLock(place / "lock"):
        code, out, err = here(capsys, *words)
    assert (code, out) == (6, "")
    assert "`tpuctl demo` of me@here, process 4711, is working on this deployment" in err
    assert "nothing was changed" in err


@pytest.fixture
def cloud(folder, tmp_path, monkeypatch, capsys):
    """Give a deployment file and a local cloud that is gone afterwards; return what runs a command on it."""
    (folder / "tpuctl.yaml").write_text(FILE.format(project="local-project"))
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    assert here(capsys, "local", "start", "--latency", "instant")[0] == 0
    yield lambda *words: here(capsys, *words)
    assert here(capsys, "local", "reset")[0] == 0


def chosen(folder):
    """Return the variables that choose this test's local cloud."""
    return {"TPUCTL_LOCAL_DIR": str(folder.parent / "cloud"), "TPUCTL_CLOUD": "local"}


def watch_on_a_terminal(folder, wanted, seconds=120):
    """Start `watch` on a terminal; return the process, its terminal and what it wrote until *wanted* came."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "watch"],
        cwd=folder, env=environment(**chosen(folder), TERM="xterm", COLUMNS="80"),
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    return process, ours, read_until(ours, wanted, seconds)


def read_until(terminal, wanted, seconds=120):
    """Return what comes from a terminal until *wanted* has come or it is closed."""
    text, end = "", time.monotonic() + seconds
    while wanted not in text and time.monotonic() < end:
        try:
            text += os.read(terminal, 65536).decode()
        except OSError:
            break
    return text


@pytest.mark.e2e
def test_a_type_that_a_new_project_may_not_have_ends_with_the_one_that_would_fit(cloud):
    """Not tried again; the local cloud's project is a new one unless it was started otherwise."""
    code, out, _ = cloud("up", "--json", "--set", "tpu.type=v5litepod-8")
    found = document(out)
    assert (code, found["code"]) == (4, "TPU-350")
    assert "you requested 8 chips, the limit is 4: v5litepod-4 would fit (tpu.type); " in found["hint"]


def a_dashboard(folder):
    """Return a process that serves the page of the deployment in *folder*; its first line is the address."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "report", "--live", "--json"], cwd=folder,
        env=environment(**chosen(folder)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def leads_to_the_other(folder):
    """Look at the dashboard's list of deployments, and at the page of the other one, until both are there."""
    board = a_dashboard(folder)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(document(board.stdout.readline())["url"]) as answer:
        place = answer.geturl()

    def page(query=""):
        with opener.open(f"{place}page{query}") as answer:
            return answer.read().decode()

    until(lambda: 'href="?deployment=other"' in page(), "the other deployment in the list", 120, 0.5)
    assert "<h1>other " in page("?deployment=other")
    assert 'href="?deployment=mine"' in page("?deployment=other")
    with pytest.raises(urllib.error.HTTPError):
        page("?deployment=nobody")
    board.send_signal(signal.SIGINT)
    assert board.communicate(timeout=120)[0] == ""


@pytest.mark.e2e
def test_the_life_of_a_deployment_in_words(cloud, folder, monkeypatch):
    """Data alone is on stdout, talk on stderr; a command before its time says what comes first."""
    code, out, _ = cloud("watch", "--json")
    assert (code, document(out)["code"], document(out)["hint"]) == (2, "TPU-130", "run: tpuctl up")
    assert document(cloud("exec", "--json", "true")[1])["code"] == "TPU-131"

    code, out, err = cloud("up", "--json")
    assert (code, document(out)["state"]) == (0, "running"), err
    assert re.search(r"^\d\d:\d\d:\d\d  Creating TPU mine-tpu-g1 .* in europe-west4-b", err, re.MULTILINE)
    assert "\x1b" not in err
    same = "no changes: bucket, VM, TPU and job match tpuctl.yaml. If no watcher runs: tpuctl watch\n"
    code, out, err = cloud("up")
    assert (code, out) == (0, "")
    assert err.startswith(
        "Code: 0 files, 0 B; largest: none\njob.command: nothing in the job reads TPUCTL_CHECKPOINT_DIR: "
    )
    assert err.endswith(f"\n{same}")

    process, terminal, text = watch_on_a_terminal(folder, "last heartbeat")
    assert "job runs" in text
    code, out, err = cloud("watch")
    assert (code, out) == (6, "")
    assert re.search(rf"`tpuctl watch` of \S+, process {process.pid}, is working on this deployment", err)
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(folder.parent / "another computer"))
    code, out, err = cloud("watch")
    monkeypatch.delenv("TPUCTL_STATE_DIR")
    assert (code, out) == (6, "")
    assert re.search(
        r"holds the lease since 2\S+ \S+ UTC \(`tpuctl watch`, last sign of life \d+ s ago\)", err
    )
    assert document(cloud("status", "--json")[1])["source"]["by"] == "the watcher"
    (folder / "src" / "new.py").write_text("1\n")
    code, out, err = cloud("push", "--json")
    assert (code, document(out)["result"]) == (0, "running"), err
    assert "paused for `tpuctl push`" in read_until(terminal, "resuming afterwards")
    assert "job runs" in read_until(terminal, "job runs")
    assert document(cloud("push", "--json")[1])["result"] == "unchanged"
    os.kill(process.pid, signal.SIGINT)
    text = read_until(terminal, "tpuctl down")
    assert process.wait(120) == 130
    assert "everything keeps running" in text
    os.close(terminal)

    code, out, err = cloud("status")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"next +run: tpuctl watch\n", out)
    body = document(cloud("status", "--json")[1])
    assert [(r["kind"], r["state"]) for r in body["resources"]] == [("bucket", "present"), ("tpu", "READY")]
    assert all(w["heartbeat_age_s"] >= 0 for w in body["workers"])
    reported = document(cloud("exec", "--json", "--", "echo", "a b")[1])
    assert [r["stdout"] for r in reported["results"]] == ["a b\n"]
    lines = [json.loads(line)["line"] for line in cloud("logs", "--json")[1].splitlines()]
    assert "hello" in lines
    last = [json.loads(line)["line"] for line in cloud("logs", "--json", "--tail", "2")[1].splitlines()]
    assert last == lines[-2:]
    assert cloud("logs", "--tail", "0")[1] == ""
    assert "hello" in cloud("logs", "--since", "1h")[1]
    assert cloud("logs", "--since", "soon")[0] == 2
    assert cloud("logs", "--events", "--tail", "1")[1].count("\n") == 1
    assert document(cloud("local", "status", "--json")[1])["running"]

    assert document(cloud("report", "--json", "-o", "r.html")[1])["file"] == "r.html"
    assert "mine-tpu-g1" in (folder / "r.html").read_text()
    board = a_dashboard(folder)
    found = document(board.stdout.readline())
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(found["url"]) as page:
        assert "mine-tpu-g1" in page.read().decode()
    board.send_signal(signal.SIGINT)
    out, err = board.communicate(timeout=120)
    assert (out, err.strip()) == ("", "interrupted")
    assert board.returncode == 130
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(found["url"])

    # Another deployment of this computer, whose ttl is over: every command sees to it that its machines go.
    other = folder.parent / "other"
    (other / "src").mkdir(parents=True)
    (other / "tpuctl.yaml").write_text(FILE.format(project="local-project").replace("mine", "other"))
    reported = ("--file", str(other / "tpuctl.yaml"))
    assert cloud("up", *reported)[0] == 0
    leads_to_the_other(folder)
    (retained,) = (folder.parent / "cloud").glob("deployments/*/other/spec.json")
    process, terminal, _ = watch_on_a_terminal(folder, "last heartbeat")
    retained.write_text(json.dumps({**verified(retained.read_bytes()), "watch": {"poll": "1s", "ttl": "2s"}}))
    code, out, err = cloud("status")
    assert code == 0
    assert "other: its time to live of 2s is over" in err
    assert "Deleting TPU other-tpu-g1" in err
    assert cloud("down", "--yes", "--delete-data", *reported)[0] == 0
    code, out, err = cloud("down", "--yes", "--delete-data", "--json")
    assert (code, document(out)["leftovers"]) == (0, []), err
    assert not document(cloud("down", "--yes", "--json")[1])["data_remains"], "there is no bucket any more"
    assert process.wait(120) == 6
    ended = read_until(terminal, "see what it leaves: tpuctl status")
    assert "is deleting the" in ended
    assert "error TPU-601" not in ended
    os.close(terminal)
    assert "Deleting " in err


@pytest.mark.e2e
def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path):
    """Ctrl-C in the middle: 130, and neither a process nor a file of it is there any more."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "demo"],
        cwd=tmp_path, env=environment(TMPDIR=str(tmp_path)), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    for line in process.stdout:
        if "Creating " in line:
            break
    (folder,) = tmp_path.glob("tpuctl-demo-*")
    marker = json.loads((folder / "cloud" / "options.json").read_text())["cloud_id"].encode()
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(120) == 130
    assert "left behind" not in rest
    assert list(tmp_path.glob("tpuctl-demo-*")) == []
    assert [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and marker in environ(p)] == []


def environ(process):
    """Return a process's environment, or nothing when it is gone or somebody else's."""
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def test_a_start_changes_only_the_settings_that_are_named(cloud, folder):
    """What an earlier start has set stays until it is named again."""
    retained = json.loads((folder.parent / "cloud" / "options.json").read_text())
    assert cloud("local", "stop")[0] == 0
    assert cloud("local", "start", "--notice", "7")[0] == 0
    assert json.loads((folder.parent / "cloud" / "options.json").read_text()) == {**retained, "notice": 7.0}
    assert (retained["latency"], retained["object_interval"]) == ("instant", 1.0)
