"""plan --output, up PLAN, explain and cost against the local cloud, and their refusals without one."""

import json

import pytest

from tests.cli.cli_kit import document, here

FILE = """\
name: mine
project: local-project
tpu: {type: v6e-4, zones: [us-east5-a, us-east5-b]}
vm: none
job: {source: src, command: "echo hello; exec sleep 600"}
watch: {poll: 1s, budget_usd: 40}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Be in a folder with a deployment file for the local cloud, which does not run yet."""
    (tmp_path / "w" / "src").mkdir(parents=True)
    (tmp_path / "w" / "tpuctl.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    return tmp_path / "w"


@pytest.fixture
def start(folder, capsys):
    """Return what starts the local cloud; it is gone afterwards."""

    def begin(*words):
        assert here(capsys, "local", "start", "--latency", "instant", "--no-fresh-project", *words)[0] == 0

    yield begin
    assert here(capsys, "local", "reset")[0] == 0


def run(capsys, *words):
    """Run a command with --json; return its exit code and document."""
    code, out, _ = here(capsys, *words, "--json")
    return code, document(out)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "checksum": "x"}'], ids=len)
def test_a_file_that_is_no_plan_is_refused_before_anything(text, folder, capsys):
    """Also one that is not there."""
    (folder / "p.json").write_text(text)
    for name in ("p.json", "gone.json"):
        code, found = run(capsys, "up", name)
        assert (code, found["code"]) == (2, "TPU-115")
        assert f"tpuctl plan --output {name}" in found["hint"]
    assert not (folder.parent / "cloud").exists()


@pytest.mark.parametrize("words", [["--set", "tpu.spot=false"], ["--file", "tpuctl.yaml"], ["--dry-run"]])
def test_a_plan_has_its_own_settings(words, folder, capsys):
    """What would be ignored is refused."""
    (folder / "p.json").write_text("{}")
    assert run(capsys, "up", "p.json", *words)[0] == 2


def test_a_name_that_this_computer_does_not_know(folder, capsys):
    """It is said which ones it knows, and nothing is started."""
    for command in ("explain", "cost"):
        code, found = run(capsys, command, "other")
        assert (code, found["code"]) == (2, "TPU-137")
    assert not (folder.parent / "cloud").exists()


@pytest.mark.e2e
def test_a_plan_is_carried_out_as_it_is_or_not_at_all(folder, start, capsys, monkeypatch):
    """The first time it brings everything up; then, with another file or another world, it is refused."""
    start()
    code, planned = run(capsys, "plan", "--output", "p.json")
    assert code == 0
    assert [c["kind"] for c in planned["changes"]] == ["bucket", "tpu", "bundle", "job"]
    body = json.loads((folder / "p.json").read_text())
    (folder / "torn.json").write_text(json.dumps({**body, "bundle": "0" * 64}))
    assert run(capsys, "up", "torn.json")[1]["code"] == "TPU-115"
    (folder / "tpuctl.yaml").write_text(FILE + "# a comment is a change too\n")
    (folder / "src" / "more.py").write_text("1\n")
    code, refused = run(capsys, "up", "p.json")
    assert (code, refused["code"]) == (1, "TPU-410")
    assert "the deployment file was changed; the code was changed" in refused["message"]
    assert run(capsys, "status")[1]["resources"][0]["state"] == "absent"
    (folder / "tpuctl.yaml").write_text(FILE)
    (folder / "src" / "more.py").unlink()

    code, done = run(capsys, "up", "p.json")
    assert (code, done["state"]) == (0, "running")
    code, refused = run(capsys, "up", "p.json")
    assert (code, refused["code"], refused["changed"]) == (1, "TPU-410", "nothing was changed")
    assert "bucket: was absent, is in us-east5" in refused["message"]
    assert "TPU mine-tpu-g1: was absent, is READY in us-east5-a" in refused["message"]
    assert run(capsys, "plan", "--output", "p.json")[1]["changes"] == []
    assert run(capsys, "up", "p.json")[1]["changes_count"] == 0

    monkeypatch.chdir("/")
    _, why = run(capsys, "explain", "mine")
    items = {item["what"]: item for item in why["items"]}
    assert (items["tpu"]["rule"], items["watcher"]["rule"]) == ("tpu.ready", "watcher.none")
    assert {e["source"] for e in items["tpu"]["evidence"]} == {"cloud", "record", "journal"}
    assert here(capsys, "local", "preempt", "mine-tpu-g1", "--no-notice")[0] == 0
    _, out, _ = here(capsys, "explain", "mine")
    assert out.startswith("mine: TPU lost, no watcher: mine-tpu-g1 is PREEMPTED")
    assert "next  delete TPU mine-tpu-g1 in us-east5-a" in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80

    _, cost = run(capsys, "cost", "mine")
    assert [i["what"] for i in cost["items"]] == ["TPU v6e-4", "TPU external address", "storage"]
    assert cost["usd"] == pytest.approx(sum(cost["uses"].values()))
    assert (cost["budget_usd"], cost["items"][0]["zone"]) == (40, "us-east5-a")
    _, out, _ = here(capsys, "cost", "mine")
    assert out.startswith("mine would have cost about")
    assert "TPU prices of" in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


@pytest.mark.e2e
def test_who_only_looks_leaves_no_private_key(folder, start, capsys):
    """A key belongs to a machine: it comes with the first one, and stays as it is."""
    start()
    for command in ("status", "cost", "explain", "checkpoints"):
        assert here(capsys, command)[0] in (0, 2)
        assert not [*folder.parent.rglob("id_ed25519")], command
    assert run(capsys, "up")[0] == 0
    assert len([*folder.parent.rglob("id_ed25519")]) == 1


@pytest.mark.e2e
def test_a_plan_that_cannot_be_carried_out_is_not_replaced_by_another(folder, start, capsys):
    """Without capacity in the zone of the plan, the next zone is not tried: nobody has approved it."""
    start("--stockout", "us-east5-a")
    assert run(capsys, "plan", "--output", "p.json")[0] == 0
    code, refused = run(capsys, "up", "p.json")
    assert (code, refused["code"]) == (1, "TPU-410")
    assert "create TPU mine-tpu-g2 in us-east5-b" in refused["message"]
    nodes = [r for r in run(capsys, "status")[1]["resources"] if r["kind"] == "tpu"]
    assert nodes == [{"kind": "tpu", "name": "-", "zone": "", "state": "absent"}]
