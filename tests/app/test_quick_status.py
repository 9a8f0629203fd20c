"""The short way of `status`: taken beside a watcher of this computer, and only where the long way says the same."""

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.expired import _expired, remember
from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.holder import this_process
from orchestrator.app.this_computer.quick_status import _may_be_over, keep_mark, published_on
from orchestrator.app.this_computer.state_folders import state_folder
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.domain.status import DeploymentStatus
from orchestrator.domain.text.units import Duration
from orchestrator.engine.publish.publisher import Publisher
from orchestrator.engine.records.record_format import encode
from tests.cli.cli_kit import environment, here
from tests.cli.test_main import HEAVY
from tests.kit.records import record_of

FILE = """\
name: mine
project: {project}
tpu: {{type: v5litepod-4, zones: [europe-west4-b]}}
vm: none
job: {{source: src, command: sleep 600}}
"""
BODY = {
    "name": "mine", "project": "one", "outcome": None, "incarnation": 1, "preemptions": 0, "usd": 0.5,
    "resources": [{"kind": "tpu", "name": "mine-tpu-g1", "zone": "europe-west4-b", "state": "READY"}],
    "workers": [], "safety_nets": [], "next_changes": [], "next_pass_in_s": 15.0, "target_steps": None,
    "budget_usd": None,
    "ttl_remaining_s": 600.0, "deadline": None, "sidecars": [], "source": {"by": "cloud", "age_s": 0.0},
    "watcher": {"on": "elsewhere", "who": "me@here", "command": "watch", "since": 0.0, "renewed_age_s": 0.0,
             "alive": True},
}  # fmt: skip
PROGRAM = """\
import atexit, json, runpy, sys
atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))))
sys.argv = ['tpuctl', 'status']
runpy.run_module('orchestrator', run_name='__main__', alter_sys=True)
"""


def known(project="one", name="mine"):
    """Remember a deployment as `up` does; return its session."""
    session = Session(Choice(Path("tpuctl.yaml"), (), "gcp"), Reporter())
    session.spec = replace(session.spec, name=name, project=project)
    session.folder.mkdir(parents=True, exist_ok=True)
    remember(session)
    return session


def retained(session, started=0.0, *, ended=True):
    """Write the record of a deployment that began at *started*."""
    until = started + 1 if ended else None
    span = Span(Kind.NODE, f"{session.spec.name}-tpu-g1", "europe-west4-b", started, until)
    record = record_of(started_at=started, spans=(span,) if started else ())
    (session.folder / "record.json").write_bytes(encode(record, session.spec.name))


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Be in the folder of a deployment that this process watches."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "w" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "w")
    Path("tpuctl.yaml").write_text(FILE.format(project="one"))
    session = known()
    retained(session)
    me = this_process("watch", time.time())
    (session.folder / "holder").write_bytes(me.to_json())
    Publisher(None, session.folder, me.id).publish(
        DeploymentStatus.from_dict(BODY), "news", time.time(), usable=False
    )
    return session


def test_the_quick_status_imports_neither_clients_nor_the_file_reader(watched):
    """The list of modules is what makes it quick; the lines are those of the long way."""
    ours = {key: os.environ[key] for key in ("TPUCTL_STATE_DIR", "TPUCTL_LOCAL_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(**ours),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, modules = done.stdout.splitlines()
    assert lines[0] == "mine  TPU #1, 0 preemptions"
    assert "ago, by the watcher (--fresh asks the cloud)" in done.stdout
    found = {m for m in json.loads(modules) if m != "google"}  # an installation may register the bare name
    assert not {m.split(".")[0] for m in found} & HEAVY
    assert not {
        m for m in found if m.startswith(("orchestrator.google", "orchestrator.app.deployment.session"))
    }


def test_the_quick_status_answers_for_a_file_a_name_and_a_folder_below(watched, monkeypatch, capsys):
    """As the long way finds them; with `seen` in the JSON too."""
    assert published_on("gcp", None, "mine").status == DeploymentStatus.from_dict(BODY)
    assert published_on("gcp", Path("tpuctl.yaml"), None).status == DeploymentStatus.from_dict(BODY)
    monkeypatch.chdir("src")
    assert published_on("gcp", None, None).status == DeploymentStatus.from_dict(BODY)
    code, out, err = here(capsys, "status", "--json")
    assert (code, err, json.loads(out)["source"]["by"]) == (0, "", "the watcher")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: Path("tpuctl.yaml").write_text(FILE.format(project="one") + "# longer\n"),
        lambda s: Path("tpuctl.yaml").unlink(),
        lambda s: (s.folder / "holder").write_bytes(replace(this_process("watch", 0.0), pid=2**22).to_json()),
        lambda s: (s.folder / "status.json").write_text("{"),
        lambda s: (s.folder / "spec.json").unlink(),
        lambda s: os.environ.update(TPUCTL_TPU__SPOT="false"),
        lambda s: os.environ.update(GOOGLE_CLOUD_PROJECT="two"),
    ],
    ids=["file", "no file", "ended", "torn", "forgotten", "variable", "project"],
)
def test_the_long_way_is_gone_when_anything_has_changed(change, watched, monkeypatch):
    """What was judged must be what is there now."""
    for variable in ("TPUCTL_TPU__SPOT", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    assert published_on("gcp", None, None) is not None
    change(watched)
    assert published_on("gcp", None, None) is None


def test_a_project_that_comes_from_the_login_is_looked_up_again(watched):
    """Another login may have another project, and the file says nothing of it."""
    (watched.folder / "file-mark").unlink()
    watched.spec = replace(watched.spec, project=None)
    keep_mark("gcp", watched.spec.project, watched.path, watched.folder)
    assert published_on("gcp", None, None) is None


def test_a_name_in_two_projects_is_nobodys(watched):
    """The long way says which ones there are."""
    known(project="two")
    assert published_on("gcp", None, "mine") is None


@pytest.mark.parametrize("spoilt", [None, "spec.json", "record.json"])
def test_another_deployment_whose_time_is_over_is_handled_first(spoilt, watched):
    """So is one that cannot be read; one that has ended keeps nobody from anything."""
    other = known(name="other")
    (other.folder / "file-mark").write_text("of another file")
    retained(other, started=time.time() - 8 * 86400, ended=True)
    assert published_on("gcp", None, None) is not None
    if spoilt:
        (other.folder / spoilt).write_text("[")
    else:
        retained(other, started=time.time() - 8 * 86400, ended=False)
    assert published_on("gcp", None, None) is None


def test_no_deployment_that_would_be_ended_is_passed_over(watched, capsys):
    """The short look at the clock agrees with the long one, for each way a record may look."""
    now, other = time.time(), known(name="other")
    ages, ttls = (0.0, 59.0, 61.0, 7 * 86400.0), ("1m", "7d")
    for age, ttl, until, asked in itertools.product(ages, ttls, (None, 5.0), (True, False)):
        other.spec = replace(other.spec, watch=replace(other.spec.watch, ttl=Duration.parse(ttl)))
        remember(other)
        spans = (Span(Kind.NODE, "n", "europe-west4-b", now - age, until),) if age else ()
        record = record_of(started_at=now - age if age else 0.0, spans=spans, accepted=asked)
        (other.folder / "record.json").write_bytes(encode(record, "other"))
        ended = [spec.name for spec in _expired(state_folder("gcp"), now, print)]
        assert _may_be_over(other.folder / "spec.json", now) == ("other" in ended), (age, ttl, until, asked)
