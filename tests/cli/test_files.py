"""init, schema, plan and `up --dry-run`: everything that needs no cloud."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.app.init import write_first_files
from orchestrator.config.fleet_job import read_job
from orchestrator.config.load import load
from orchestrator.config.schema import json_schema
from tests.cli.cli_kit import ROOT, document, here, tpuctl
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User

FLEETS = ["sweep"]
EXAMPLES = sorted(one for one in (ROOT / "examples").glob("*/tpuctl.yaml") if one.parent.name not in FLEETS)
FILE = (
    "name: {name}\ntpu: {{type: {accelerator}, zones: [{zone}]}}\njob: {{command: python3 train.py}}\n{more}"
)


def write(folder, name="mine", accelerator="v5litepod-8", zone="europe-west4-b", more=""):
    """Write a deployment file."""
    (folder / "tpuctl.yaml").write_text(FILE.format(name=name, accelerator=accelerator, zone=zone, more=more))


@pytest.mark.parametrize(
    ("folder", "name"),
    [("bert", "bert"), ("My Model_2", "my-model-2"), ("7b", "my-model"), ("--", "my-model")],
)
def test_init_names_the_deployment_after_its_folder(folder, name, tmp_path, capsys):
    """The file validates as it is, and the next step is said."""
    code, out, err = here(capsys, "init", str(tmp_path / folder))
    assert (code, out) == (0, "")
    assert load(tmp_path / folder / "tpuctl.yaml").name == name
    assert "tpuctl plan" in err


def test_init_lets_machines_install_what_the_folder_lists(tmp_path, capsys):
    """Where there is no list, the setting stays a comment."""
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert here(capsys, "init", "--name", "mine", str(tmp_path))[0] == 0
    assert load(tmp_path / "tpuctl.yaml", environ={}).job.setup == "pip install -r requirements.txt"
    assert here(capsys, "init", "--name", "mine", str(tmp_path / "other"))[0] == 0
    assert load(tmp_path / "other" / "tpuctl.yaml", environ={}).job.setup == ""


SAVES = 'import argparse, numpy\np = argparse.ArgumentParser()\np.add_argument("--{}", "-o")\n'


@pytest.mark.parametrize(
    ("files", "command", "setup"),
    [
        ({"a.py": SAVES.format("out")}, 'python3 a.py --out "$TPUCTL_CHECKPOINT_DIR"', "pip install numpy"),
        (
            {"main.py": SAVES.format("save-dir"), "lib.py": ""},
            'python3 main.py --save-dir "$TPUCTL_CHECKPOINT_DIR"', "pip install numpy",
        ),
        ({"a.py": "import os\nos.environ['TPUCTL_CHECKPOINT_DIR']"}, "python3 a.py", ""),
        ({"a.py": "import yaml", "test_a.py": ""}, "python3 a.py", "pip install pyyaml"),
        ({"a.py": "import click, dotenv"}, "python3 a.py", "pip install click python-dotenv"),
        ({"a.py": "import yaml, jax"}, "python3 a.py", ""),
        ({"a.py": "", "b.py": ""}, 'python3 train.py --out "$TPUCTL_CHECKPOINT_DIR"', ""),
        ({"a.py": "import numpy", "requirements.txt": "numpy"}, "python3 a.py", "pip install -r requirements.txt"),
        ({"train.py": "not Python ("}, 'python3 train.py --out "$TPUCTL_CHECKPOINT_DIR"', ""),
    ],
)  # fmt: skip
def test_init_fits_what_is_there(tmp_path: Path, files: dict[str, str], command: str, setup: str) -> None:
    """The first plan of one's own script needs no edit: the command is right, and its packages are installed."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    job = load(write_first_files(tmp_path, None, "mine").file, environ={}).job

    assert (job.command, job.setup) == (command, setup)


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (
            "import cv2, yaml, lib\nfrom PIL import Image\nimport foo.bar",
            [
                "  # Which package has the module foo, imported in train.py:3? Install it here",
                "  # too.",
                "  setup: pip install opencv-python-headless pillow pyyaml",
            ],
        ),
        (
            "import foo, os",
            [
                "  # Which package has the module foo, imported in train.py:1? Install it here",
                "  # too.",
                "  # setup: pip install ...",
            ],
        ),
        (
            "import jax, numpy",
            [
                "  # Is this the build of jax for your TPU and its Python?",
                '  # setup: "pip install jax[tpu] numpy"',
            ],
        ),
    ],
)
def test_init_asks_for_what_it_does_not_know(tmp_path: Path, program: str, lines: list[str]) -> None:
    """A module of no known package, and a package with a build for each chip, are no silent guess."""
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "lib.py").write_text("")
    text = write_first_files(tmp_path, None, "mine").file.read_text()
    assert "\n".join(lines) in text


@pytest.mark.parametrize("recipe", [path.parent.name for path in EXAMPLES])
def test_init_copies_a_recipe(recipe, tmp_path, capsys):
    """Every file of the example comes along, and --name renames the deployment."""
    code, out, _ = here(capsys, "init", "--recipe", recipe, "--name", "mine", "--json", str(tmp_path / "x"))
    assert code == 0
    assert document(out)["file"] == str(tmp_path / "x" / "tpuctl.yaml")
    wanted = {p.name for p in (ROOT / "examples" / recipe).iterdir() if p.is_file()}
    assert {p.name for p in (tmp_path / "x").iterdir() if p.is_file()} == {*wanted, "tpuctl.schema.json"}
    assert load(tmp_path / "x" / "tpuctl.yaml").name == "mine"
    code, out, err = here(
        capsys, "plan", "--offline", "--json", "--file", str(tmp_path / "x" / "tpuctl.yaml")
    )
    assert code == 0, err
    planned = document(out)
    assert [change["kind"] for change in planned["changes"]].count("tpu") == 1
    assert planned["price"]["spot_usd_hour"] > 0
    assert not [one for one in planned["check"]["findings"] if one["level"] == "stop"]


@pytest.mark.parametrize("recipe", FLEETS)
def test_init_copies_a_fleet_and_names_its_first_command(recipe, tmp_path, capsys):
    """Its jobs are valid, and `plan` is not for it."""
    code, _, err = here(capsys, "init", "--recipe", recipe, str(tmp_path / "x"))
    assert (code, "tpuctl fleet up" in err, "tpuctl plan" in err) == (0, True, False)
    job = read_job(tmp_path / "x" / "sweep.yaml", tmp_path / "x" / "tpuctl.yaml", {})
    assert (len(job.parameters), job.collect) == (20, ("metrics.json",))


@pytest.mark.parametrize(("words", "there"), [([], "tpuctl.yaml"), (["--recipe", "numpy-lm"], "train.py")])
def test_init_overwrites_nothing(words, there, tmp_path, capsys):
    """Whatever is there stays, to the byte, and nothing is put beside it."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / there).write_text("precious")
    code, out, err = here(capsys, "init", *words, str(tmp_path / "x"))
    assert (code, out) == (2, "")
    assert f"{there} exists already" in err.replace("\n", "")
    assert [(p.name, p.read_text()) for p in (tmp_path / "x").iterdir()] == [(there, "precious")]


@pytest.mark.parametrize(
    ("words", "code"), [(["--recipe", "nump-lm"], "TPU-113"), (["--name", "Bad_Name"], "TPU-110")]
)
def test_init_refuses_what_cannot_work(words, code, tmp_path, capsys):
    """A wrong recipe or name writes nothing."""
    status, out, _ = here(capsys, "init", *words, "--json", str(tmp_path / "x"))
    assert (status, document(out)["code"]) == (2, code)
    assert not (tmp_path / "x").exists()


def test_the_published_schema_is_the_one_in_the_code(capsys):
    """Editors read docs/tpuctl.schema.json; `tpuctl config schema` prints the same."""
    published = ROOT / "docs" / "tpuctl.schema.json"
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        published.write_text(json.dumps(json_schema(), indent=2) + "\n")
    assert json.loads(published.read_text()) == json_schema()
    code, out, err = here(capsys, "config", "schema")
    assert (code, json.loads(out), err) == (0, json_schema(), "")


def no_network():
    """Return the words that run a command where there is no network, or skip."""
    words = ["unshare", "-n"]
    unshared = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False)
    if not unshared or unshared.returncode:
        pytest.skip("unshare -n is not allowed here")
    return words


@pytest.mark.parametrize("words", [["plan", "--show", "scripts"], ["up", "--dry-run"]])
def test_a_plan_needs_no_network_and_no_credentials(words, tmp_path):
    """CI can ask what `up` would do: without network, home or login. Nothing is left behind."""
    shutil.copytree(ROOT / "examples" / "numpy-lm", tmp_path / "w")
    home = tmp_path / "nobody"
    done = tpuctl(
        *words, "--json", cwd=tmp_path / "w", before=no_network(), HOME=str(home),
        PYTHONDONTWRITEBYTECODE="1", GOOGLE_APPLICATION_CREDENTIALS="/nonexistent",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = document(done.stdout)
    assert found["kind"] == "plan"
    assert [c["kind"] for c in found["changes"]] == ["bucket", "vm", "tpu", "bundle", "job"]
    assert ("#!" in json.dumps(found.get("scripts", {}))) == ("--show" in words)
    assert not home.exists()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_every_example_plans_within_eighty_columns(path, capsys, monkeypatch):
    """Each deployment file that we ship works, and reads well on a small terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = here(capsys, "plan", "--file", str(path))
    (then,) = err.splitlines()
    assert (code, then.startswith("  next:  ")) == (0, True)
    assert "5 changes: 5 to create" in out
    assert max(len(line.rstrip()) for line in [*out.splitlines(), then]) <= 80
    assert "An estimate, not a bill." in " ".join(out.split())


def test_the_scripts_are_shown_as_the_machines_would_run_them(tmp_path, capsys, monkeypatch):
    """What is printed is bash, whole."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    code, out, _ = here(capsys, "plan", "--show", "scripts", "--json")
    assert code == 0
    scripts = document(out)["scripts"]
    assert any("startup" in name for name in scripts)
    for text in scripts.values():
        if text.startswith(("#!/bin/bash", "#!/usr/bin/env bash")):
            subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"more": "vm: {zone: us-central1-a}"}, "europe-west4"),
        ({"more": "bucket: {location: us-central1}"}, "europe-west4"),
        ({"zone": "europe-west4-b, us-central1-a"}, "region"),
        ({"zone": "mars-west1-a"}, "mars-west1-a"),
        ({"accelerator": "v5litepod-7"}, "v5litepod-7"),
        ({"accelerator": "v2-8", "zone": "us-west4-a"}, "v2-8"),
        ({"more": "jop: {}"}, "job"),
    ],
)
def test_a_file_that_cannot_work_is_refused_with_its_place(settings, says, tmp_path, capsys, monkeypatch):
    """One region for TPU, VM and bucket; real zones and types; no unknown key. `plan` and `up` agree."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **settings)
    code, out, err = here(capsys, "plan")
    assert (code, out) == (2, "")
    assert "tpuctl.yaml:" in err
    assert says in err
    assert here(capsys, "up")[0] == 2
    assert not (tmp_path / "cloud").exists()


def test_settings_come_from_flags_then_variables_then_the_file(tmp_path, capsys, monkeypatch):
    """--set beats TPUCTL_*, which beats the file; the file is found from a folder below."""
    write(tmp_path, name="from-file")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")

    def name(*words):
        code, out, _ = here(capsys, "plan", "--json", *words)
        assert code == 0
        return document(out)["name"]

    assert name() == "from-file"
    monkeypatch.setenv("TPUCTL_NAME", "from-variable")
    assert name() == "from-variable"
    assert name("--set", "name=from-flag") == "from-flag"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", "--file", "absent.yaml"], "TPU-112"),
        (["plan", "--set", "nothing"], "TPU-100"),
        (["plan"], "TPU-111"),
        (["watch"], "TPU-111"),
        (["status"], "TPU-111"),
        (["down", "--yes"], "TPU-111"),
        (["logs"], "TPU-111"),
        (["exec", "true"], "TPU-111"),
    ],
)
def test_without_a_file_each_command_says_so_in_json_too(words, code, tmp_path, capsys, monkeypatch):
    """One JSON document is on stdout, nothing on stderr, and the exit code is 2."""
    monkeypatch.chdir(tmp_path)
    if "--set" in words:
        write(tmp_path)
    status, out, err = here(capsys, words[0], "--json", *words[1:])
    assert (status, err) == (2, "")
    found = document(out)
    assert (found["kind"], found["code"], found["exit_code"]) == ("error", code, 2)
    assert found["hint"]


def test_a_link_out_of_the_source_is_refused_before_anything_exists(tmp_path, capsys, monkeypatch):
    """A symlink out of the tree is found by `plan` already."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    (tmp_path / "out").symlink_to("/etc")
    code, out, err = here(capsys, "plan")
    assert (code, out) == (2, "")
    assert "out" in err
    assert "next:" in err


@pytest.mark.parametrize("words", [["plan", "--offline"], ["check"]])
@pytest.mark.parametrize("source", ["..", "../beside", "{above}", "src/../../beside", "link"])
def test_code_above_the_project_is_not_sent(source, words, tmp_path, capsys, monkeypatch):
    """A slip of `..` would send a whole home; in a git checkout each of its folders may be sent."""
    monkeypatch.setenv("TPUCTL_CLOUD", "local")
    for folder in ("beside", "deploy/src"):
        (tmp_path / "w" / folder).mkdir(parents=True)
    deploy = tmp_path / "w" / "deploy"
    (deploy / "link").symlink_to(tmp_path / "w" / "beside")
    file = deploy / "tpuctl.yaml"
    job = {"source": source.format(above=tmp_path), "command": "true"}
    tpu = {"type": "v5litepod-8", "zones": ["europe-west4-b"]}
    file.write_text(json.dumps({"name": "mine", "project": "my-project", "tpu": tpu, "job": job}))
    code, out, _ = here(capsys, *words, "--json", "--file", str(file))
    assert (code, document(out)["code"]) == (2, "TPU-141")
    assert "out of the project" in document(out)["message"]
    (tmp_path / "w" / ".git").mkdir()
    inside = source != "{above}"
    code, out, _ = here(capsys, "plan", "--offline", "--json", "--file", str(file))
    assert (code == 0) == inside


def test_up_sends_nothing_from_above_the_project(tmp_path):
    """It is refused before the first call that changes something."""
    with VirtualCloud(tmp_path).open() as cloud:
        said = User(cloud, job__source="..").run("up", "--json")
        assert (said.code, said.document["code"]) == (2, "TPU-141")
        assert cloud.mutations() == []


def test_init_and_check_propose_the_same_packages(tmp_path, monkeypatch, capsys):
    """Builds for the TPU in both; what init leaves as a question it also says on the terminal."""
    monkeypatch.chdir(tmp_path)
    program = "import torch, jax, torch_xla, cv2\nopen(__import__('os').environ['TPUCTL_CHECKPOINT_DIR'])\n"
    (tmp_path / "train.py").write_text(program)
    command = "pip install jax[tpu] opencv-python-headless torch torch_xla[tpu]"
    said = here(capsys, "init")[2]
    assert f"  setup: not set: decide the commented question at job.setup ({command})" in said
    assert "tpuctl.schema.json beside it" in said
    assert f'# setup: "{command}"' in (tmp_path / "tpuctl.yaml").read_text()
    (found,) = [
        one
        for one in document(here(capsys, "check", "--json")[1])["findings"]
        if one["rule"] == "missing-requirement"
    ]
    assert found["hint"] == f"for example setup: {command}"
    assert "imports jax, opencv-python-headless, torch, torch-xla," in found["message"]


def test_init_says_what_it_wrote_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    """The next command works where the user stands; each file of a recipe is named."""
    monkeypatch.chdir(tmp_path)
    said = here(capsys, "init", "my model", "--recipe", "numpy-lm")[2]
    assert "Wrote 10 files to my model" in said
    assert all(path.name in said for path in (tmp_path / "my model").iterdir())
    assert "next:  cd 'my model' && tpuctl plan" in said
    assert "guess" not in said
    said = here(capsys, "init")[2]
    assert "Wrote tpuctl.yaml" in said
    assert "next:  tpuctl plan" in said
    assert "  TPU:   v5litepod-" in said
    assert "  runs:  train.py is only an example, since no program was found" in said
