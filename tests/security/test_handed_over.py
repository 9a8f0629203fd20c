"""A project that somebody hands over: its files belong to the user then, and what they mean is shown first."""

import json

import pytest

from tests.cli.cli_kit import document, here

TITLE = "\x1b]0;evil\x07"
FILE = {
    "name": "evil",
    "tpu": {"type": "v5litepod-4", "zones": ["europe-west4-b"]},
    "job": {"command": "python train.py"},
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return what writes a deployment file into a folder that is handed over, and stands in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(folder)

    def write(job=None, **more):
        body = {**FILE, **more, "job": {**FILE["job"], **(job or {})}}
        (folder / "tpuctl.yaml").write_text(json.dumps(body))
        return folder

    return write


def test_the_plan_says_which_programs_run_on_this_computer(project, capsys):
    """The job runs on machines; hooks run here, as who types `tpuctl up`."""
    project(notify={"hooks": {"up": "./after.sh --all", "done": "./after.sh --all", "failed": "./tell"}})
    out = " ".join(here(capsys, "plan", "--offline")[1].split())
    assert "Runs on this computer, as you, for notifications of kind up, done: ./after.sh --all" in out
    assert "Runs on this computer, as you, for notifications of kind failed: ./tell" in out
    found = document(here(capsys, "plan", "--offline", "--json")[1])
    assert found["hooks"] == {"up": "./after.sh --all", "done": "./after.sh --all", "failed": "./tell"}


@pytest.mark.parametrize("way", ["folder", "file"])
def test_the_plan_says_where_links_lead_data_out_of_the_project(project, capsys, tmp_path, way):
    """`./data` of a project may be a link to anything of the user's."""
    folder = project(job={"data": {"data": "./data"}})
    diary = tmp_path / "documents" / "diary.txt"
    diary.parent.mkdir()
    diary.write_text("dear diary\n")
    if way == "folder":
        (folder / "data").symlink_to(diary.parent)
    else:
        (folder / "data").mkdir()
        (folder / "data" / "notes").symlink_to(diary)
    (folder / ".tpuctlignore").write_text("data\n")
    leads = str(diary.parent if way == "folder" else diary)
    found = document(here(capsys, "plan", "--offline", "--json")[1])
    assert found["data"][0]["leads_to"] == leads
    out = "".join(here(capsys, "plan", "--offline")[1].split())
    assert f"./data,whichleadsoutoftheprojectto{leads},".replace(" ", "") in out


def test_data_that_is_named_where_it_lies_leads_nowhere_else(project, capsys, tmp_path):
    """Who reads `../documents` knows that it is not of the project; a link inside of it is no way out."""
    folder = project(job={"data": {"data": "./data", "outside": "../documents"}})
    for place in (tmp_path / "documents", folder / "data"):
        place.mkdir()
        (place / "a").write_text("a\n")
        (place / "b").symlink_to("a")
    (folder / ".tpuctlignore").write_text("data\n")
    found = document(here(capsys, "plan", "--offline", "--json")[1])
    assert [one.get("leads_to") for one in found["data"]] == [None, None]


def test_settings_do_not_steer_the_terminal(project, capsys):
    """A file of text may spell escape sequences without holding one."""
    project(job={"setup": f"true {TITLE}", "env": {"K": TITLE}})
    for words in (("config",), ("config", "--all")):
        code, out, err = here(capsys, *words)
        assert code == 0
        assert "\\x1b]0;evil\\x07" in out
        assert "\x1b" not in out + err


@pytest.mark.parametrize("words", [(), ("--recipe", "numpy-lm")])
@pytest.mark.parametrize("planted", ["tpuctl.yaml", "tpuctl.schema.json", "train.py"])
def test_init_writes_through_no_link(capsys, tmp_path, words, planted):
    """A link that leads nowhere yet would make a file elsewhere, such as one that a shell reads."""
    folder, target = tmp_path / "project", tmp_path / ".bash_login"
    folder.mkdir()
    (folder / planted).symlink_to(target)
    code, _, err = here(capsys, "init", *words, str(folder))
    assert not target.exists()
    assert (code, "TPU-114" in err) == ((2, True) if wanted(planted, words) else (0, False))


def wanted(planted, words):
    """Return whether `init` would write that file."""
    return planted != "train.py" or bool(words)
