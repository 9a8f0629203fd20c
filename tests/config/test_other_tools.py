"""Files of other tools: what becomes of everything they say. The expectation stands in each file's comments."""

import json
import os
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.cli.main import run
from orchestrator.config.document import parse
from orchestrator.config.load import load, read
from orchestrator.config.others.recognise import convert
from orchestrator.errors import UsageError

FOLDER = Path(__file__).parent / "others"
FILES = sorted(path for path in FOLDER.rglob("*.*") if path.suffix in (".yaml", ".yml", ".sh"))
TOOLS = {"skypilot": "SkyPilot", "dstack": "dstack", "xpk": "xpk", "tpunicorn": "tpunicorn"}


def expected(path, sign):
    """Return what the comments `#=`, `#-`, `#?` or `#!` of a file say."""
    return [line[3:] for line in path.read_text().splitlines() if line.startswith(f"#{sign} ")]


def converted(path):
    """Return what becomes of a file."""
    return convert(path.read_bytes(), path.name, "of-the-folder")


def ids(path):
    """Name a file in the list of tests."""
    return f"{path.parent.name}/{path.stem}"


def test_each_tool_has_ten_files():
    """The formats are covered from their smallest file to what we have no setting for."""
    for tool in TOOLS:
        assert sum(path.parent.name == tool for path in FILES) >= 10


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_what_the_file_says_is_mapped_skipped_or_to_decide(path):
    """Settings by their value as our own reader sees it, the rest by its row."""
    found = converted(path)
    assert found.tool == TOOLS[path.parent.name]
    spec = read(found.text.encode(), "tpuctl.yaml", environ={})
    for line in expected(path, "="):
        key, _, value = line.partition(": ")
        held = spec
        for part in key.split("."):
            held = getattr(held, part)
        if isinstance(held, dict | tuple) and not isinstance(held, str):
            assert held == literal_eval(value), key
        else:
            assert str(held) == value.replace("\\n", "\n"), key
    for sign, verdict, side in (("-", "left out", "theirs"), ("?", "decide", "ours")):
        for line in expected(path, sign):
            rows = [getattr(row, side) for row in found.rows if row.verdict == verdict]
            assert any(text.startswith(line) for text in rows), (line, rows)
    for secret in expected(path, "!"):
        assert secret in path.read_text()
        assert secret not in found.text + str(found.rows)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix != ".sh"], ids=ids)
def test_no_key_of_the_file_is_passed_over(path):
    """Each key, and each one below resources, has a row."""
    data = parse(path.read_bytes(), path.name).data
    text = "\n".join(row.theirs for row in converted(path).rows)
    for key, value in data.items():
        # A cloud that is Google's is what there is; the places of another one go with it.
        if key in ("type", "resources", "backends", "regions") or value in ({}, [], None):
            continue
        below = value if key == "envs" and isinstance(value, dict) else {key: value}
        assert all(part in text for part in below), (key, text)
    skipped = {"cloud", "infra", "region", "any_of", "ordered"}
    for key in set(data.get("resources", {})) - skipped:
        assert key in text, (key, text)


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_every_skipped_row_says_why_and_stands_in_the_file(path):
    """Whoever opens tpuctl.yaml a month later sees what is missing."""
    found = converted(path)
    comments = re.sub(r"\s*\n# *", " ", found.text)
    for row in found.rows:
        assert row.verdict in ("mapped", "left out", "decide")
        if row.verdict != "mapped":
            assert row.message
            assert " ".join(row.message.split())[:40] in comments, row


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_our_own_commands_accept_the_result(path, tmp_path, monkeypatch, capsys):
    """`config` reads it and `check` finds nothing of its own making; both without a network."""
    monkeypatch.chdir(tmp_path)
    for name in ("code", "configs", "trainer", "corpus"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.txt").write_text("1")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["init", "--from", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tool"] == TOOLS[path.parent.name]
    assert document["rows"]
    assert load(tmp_path / "tpuctl.yaml", environ={})
    assert run(["config"]) == 0
    capsys.readouterr()
    run(["check", "--json"])
    assert json.loads(capsys.readouterr().out)["kind"] == "check"


def test_a_person_sees_three_lists(tmp_path, monkeypatch, capsys):
    """What is mapped, what is left out, what to decide; then where the file is and what comes next."""
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--from", str(FOLDER / "skypilot" / "06-mounts.yaml")]) == 0
    out, err = capsys.readouterr()
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [
        "Mapped:",
        "Left out:",
        "To decide:",
    ]
    assert "tpuctl.yaml is written, from a file of SkyPilot" in err
    assert run(["init", "--from", str(FOLDER / "skypilot" / "06-mounts.yaml")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_one_command_is_no_range(tmp_path, monkeypatch, capsys):
    """A range of one has one number."""
    monkeypatch.chdir(tmp_path)
    task = "type: task\nname: a\ncommands: [pip install x, python3 train.py]\nresources: {gpu: v5litepod-4}\n"
    (tmp_path / "dstack.yml").write_text(task)
    assert run(["init", "--from", "dstack.yml"]) == 0
    out = capsys.readouterr().out
    assert "commands, number 1 " in out
    assert "commands, number 2 " in out


def test_a_name_on_the_command_line_wins(tmp_path, monkeypatch):
    """As it does without --from."""
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--from", str(FOLDER / "xpk" / "01-smallest.sh"), "--name", "mine"]) == 0
    assert load(tmp_path / "tpuctl.yaml", environ={}).name == "mine"


HOSTILE = {
    "runs.sh": b"xpk workload create --workload $(touch canary) --tpu-type `touch canary` --command 'touch x'\n"
    b"touch canary; eval touch canary; : > canary\n",
    "runs.yaml": b"name: '$(touch canary)'\nrun: touch canary\nsetup: |\n  touch canary\n"
    b"resources: {infra: '`touch canary`'}\n",
    "steers.yaml": b'name: "a\\e[2J\\u202e"\nresources: {"k\\e[31m\\nnext: rm -rf": 1}\nrun: "x\\e]0;title\\a"\n',
    "object.yaml": b"run: !!python/object/apply:os.system ['touch canary']\n",
    "bomb.yaml": b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c]\nrun: [*d,*d,*d,*d,*d,*d]\n",
    "two.yaml": b"name: pipeline\n---\nrun: echo 1\n---\nrun: echo 2\n",
    "binary.sh": bytes(range(256)) * 20,
    "long.sh": b"xpk workload create --command '" + b"x" * 2_000_000 + b"'\n",
    "unclosed.sh": b"xpk workload create --workload a --command 'never closed\n",
    "climbs.yaml": b"workdir: ../../..\nfile_mounts: {/etc/passwd: /etc/shadow, ../../x: ~/.ssh}\n"
    b"resources: {accelerators: tpu-v2-8}\nrun: a\n",
    "shapes.yaml": b"resources: [1, 2]\nenvs: 3\nfile_mounts: yes\nrun: {a: b}\nsetup: [c]\nname: [d]\n1: 2\n",
    "dstack-shapes.yml": b"type: task\nresources: 1\nenv: 2\ncommands: 3\nfiles: {a: b}\nretry: x\nname: {}\n",
    "service.yml": b"type: service\nport: 80\ncommands: [x]\n",
    "ours.yaml": b"name: a\ntpu: {type: v2-8}\njob: {command: x}\n",
    "token.sh": b"pu create a -a v2-8\npython3 t.py --token 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\n",
    "empty.yaml": b"",
}


def rows(path, capsys):
    """Return the rows of the table by their setting or by the other tool's word."""
    assert run(["init", "--from", str(path), "--json", str(path.parent / "there")]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    return {row["ours"] or row["theirs"]: row["message"] for row in found if row["verdict"] != "mapped"}


def test_a_script_that_leaves_values_to_its_reader_is_asked_about_once(tmp_path, capsys):
    """As public recipes do: a list of empty exports, and a type that another file sets."""
    (tmp_path / "r.sh").write_text(
        'export PROJECT=""\nsource env.sh\n'
        "xpk workload create --project $PROJECT --tpu-type=${TYPE} --zone $ZONE --command 'python3 a.py'\n"
    )
    found = rows(tmp_path / "r.sh", capsys)
    assert found["project"] == "the script leaves it empty: --project $PROJECT"
    assert found["tpu.type: v5litepod-4"] == (
        "the script does not set it in plain words: --tpu-type ${TYPE}; choose yours"
    )
    assert [key for key in found if key.startswith(("tpu.type", "tpu.zones"))] == [
        "tpu.type: v5litepod-4", "tpu.zones: us-central1-a",
    ]  # fmt: skip


def test_a_variable_whose_name_begins_as_another_one_does_keeps_its_own_row():
    """`ZONE` is refused; `ZONE_MAP` is not, and a comment says where it comes from."""
    task = b"name: a\nenvs: {ZONE_MAP: y, ZONE: z}\nrun: python3 a.py\n"
    found = convert(task, "task.yaml", "folder")
    assert dict(read(found.text.encode(), "x", environ={}).job.env) == {"ZONE_MAP": "y"}
    assert [row.theirs for row in found.rows if row.key[:2] == ("job", "env")] == ["envs.ZONE_MAP=y"]
    assert "  # From envs.ZONE_MAP=y\n  env:\n" in found.text
    refused = [row.theirs for row in found.rows if "is set by tpuctl itself" in row.message]
    assert refused == ["envs.ZONE=z"]


def test_a_decision_about_an_item_with_a_dot_in_its_name_stands_at_its_mapping():
    """Not below, in the list of what the file has not."""
    task = b"name: a\nfile_mounts: {/data/v1.2: 'gs://corpus/v1.2'}\nrun: python3 a.py\n"
    text = convert(task, "task.yaml", "folder").text
    assert "# DECIDE: the job reads /data/v1.2" in text.partition("  data:")[0]
    assert "- job.data.data/v1.2" not in text


def test_a_tpu_of_another_api_is_not_called_no_tpu(tmp_path, capsys):
    """TPU7x is one, and GKE has it. No row is as long as the list of all zones."""
    (tmp_path / "r.sh").write_text(
        "xpk workload create --device-type tpu7x-4x4x4 --zone us-central1-c --command 'python3 a.py'\n"
    )
    found = rows(tmp_path / "r.sh", capsys)
    assert found["--device-type tpu7x-4x4x4"].startswith("no type of the Cloud TPU API")
    assert max(map(len, found.values())) < 250


def test_a_script_without_a_plain_call_is_not_read_as_yaml(tmp_path, capsys):
    """What the parser of YAML says of a shell script is a riddle."""
    (tmp_path / "r.sh").write_text('#!/bin/bash\nset -e\ncmd="xpk workload create --workload a"\neval $cmd\n')
    assert run(["init", "--from", str(tmp_path / "r.sh"), str(tmp_path / "there")]) == 2
    said = capsys.readouterr().err
    assert "TPU-146" in said
    assert "document start" not in said
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_a_file_that_is_right_or_in_one_clear_error(name, tmp_path):
    """Nothing of it runs, nothing of it steers the terminal, and no half of a project is left."""
    (tmp_path / name).write_bytes(HOSTILE[name])
    folder = tmp_path / "there"
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "init", "--from", str(tmp_path / name), str(folder)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert not list(tmp_path.rglob("canary"))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", done.stdout + done.stderr)
    assert "hf_NotARealToken" not in done.stdout + done.stderr
    if done.returncode == 0:
        assert load(folder / "tpuctl.yaml", environ={})
        text = (folder / "tpuctl.yaml").read_text()
        assert "/etc/shadow" not in "\n".join(line for line in text.splitlines() if "#" not in line)
        assert "hf_NotARealToken" not in text
    else:
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error TPU-1")
        assert "othing was written" in done.stderr
        assert not folder.exists()


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path, capsys):
    """A device could feed us for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "gone"):
        assert run(["init", "--from", str(path), str(tmp_path / "x")]) == 2
        assert "TPU-1" in capsys.readouterr().err


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(FILES),
    st.integers(0, 4000),
    st.integers(0, 60),
    st.sampled_from(['"', "'", "$(", "\n", ": ", "\0", "é", "- "]),
)
@example(FILES[0], 0, 0, "")
def test_a_damaged_file_is_converted_or_refused(path, at, gone, put):
    """A result always validates; any other exception than ours is a bug."""
    raw = path.read_bytes()
    at = min(at, len(raw))
    try:
        found = convert(raw[:at] + put.encode() + raw[at + gone :], path.name, "x")
    except UsageError:
        return
    assert read(found.text.encode(), "x", environ={})


def test_the_page_shows_what_comes_out():
    """Each example of docs/from-other-tools.md is converted, and means what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "from-other-tools.md").read_text()
    examples = re.findall(
        r"```(?:sh|yaml)\n((?:(?!```).)*)```\n\nbecomes\n\n```yaml\n(.*?)```", page, re.DOTALL
    )
    assert len(examples) == len(TOOLS)
    for before, after in examples:
        found = read(convert(before.encode(), "x", "folder").text.encode(), "x", environ={})
        assert found == read(after.encode(), "x", environ={})


def test_a_dot_in_the_name_of_a_variable_separates_nothing():
    """`B.C` is refused as one name; `B` beside it stays."""
    found = convert(b"name: a\nenvs: {B: x, B.C: y}\nrun: python3 a.py\n", "task.yaml", "folder")
    assert dict(read(found.text.encode(), "x", environ={}).job.env) == {"B": "x"}
    assert [row.theirs for row in found.rows if row.verdict == "left out"] == ["envs.B.C=y"]
