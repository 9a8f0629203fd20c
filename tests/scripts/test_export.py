"""The deployment as plain scripts: clean for shellcheck, nothing secret in them, and in nobody's way."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.main import run
from orchestrator.config.load import load, read
from orchestrator.domain.names import bucket_name, node_name, vm_name
from orchestrator.errors import UsageError
from orchestrator.scripts.exports.plain import export_files
from tests.scripts.test_render import NASTY, SHELLCHECK

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/tpuctl.yaml"))
READ = ("settings.sh", "machine/environment.sh")
"""The files of values that the scripts read."""
CLEAN = set()
"""Scripts in which shellcheck has found nothing, each with the variables that the files set which it reads."""
SPEC = """\
name: demo
tpu: {type: v5litepod-8, zones: [europe-west4-b, europe-west4-a]}
job:
  command: python3 train.py
"""


def files_of(text, folder=Path("/out"), source=Path("/code")):
    """Return the exported files of a deployment file."""
    return export_files(read(text.encode(), "tpuctl.yaml", environ={}), "p-1", folder, source, source)


def sourced(files, tmp_path, script):
    """Run bash in a folder with the exported files, as a machine has them."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = tmp_path / "machine"
    shutil.copy(tmp_path / "settings.sh", machine)
    (machine / "boot.env").write_text("")
    (machine / "worker.env").write_text("WORKER=0\nWORKERS=1\n")
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=machine, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_scripts_of_every_example_are_clean(name, tmp_path):
    """Shellcheck finds nothing in them, at its strictest."""
    spec = load(ROOT / "examples" / name / "tpuctl.yaml", environ={})
    if spec.job.run_on == "vm":
        spec = replace(spec, job=replace(spec.job, run_on="tpu"))
    files = export_files(spec, "p-1", tmp_path, ROOT / "examples" / name, ROOT)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    scripts = {path: text for path, text in files.items() if text.startswith("#!")}
    assert len(scripts) >= 13
    scripts |= {path: files[path] for path in READ}
    # Most are the same for all; what they read (-x) differs in values, which are judged in its own file.
    unquoted = re.sub(r"'[^']*'", "", "".join(files[path] for path in READ))
    variables = frozenset(re.findall(r"\w+(?==)", unquoted))
    unknown = [path for path, text in scripts.items() if (text, variables) not in CLEAN]
    assert set(READ) <= set(unknown)
    done = subprocess.run(
        [SHELLCHECK, "-x", "-S", "style", *unknown],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    CLEAN.update((scripts[path], variables) for path in unknown)


@pytest.mark.parametrize("text", [one for one in NASTY if "\0" not in one])
def test_no_text_of_the_file_leaves_its_word(text, tmp_path):
    """Commands and values come through bash as they are; nothing of them runs where it is only read."""
    quoted = json.dumps(text)
    spec = SPEC.replace(
        "command: python3 train.py", f"command: {json.dumps(text or 'x')}\n  env: {{A: {quoted}}}"
    )
    try:
        files = files_of(spec)
    except UsageError:
        return
    shown = sourced(
        files, tmp_path, '. ./environment.sh; job_variables; printf "%s\\0%s" "$JOB_COMMAND" "$A"'
    )
    assert shown.partition("\0")[0] == (text or "x")
    if "$" not in text:
        assert shown.partition("\0")[2] == text


def test_values_of_the_environment_refer_to_what_the_job_is_promised(tmp_path):
    """As on a machine of tpuctl: known names are replaced, `$$` is a dollar, other names stay."""
    files = files_of(SPEC + "  env: {A: 'gs://$TPUCTL_BUCKET/${TPUCTL_WORKER_ID}/$$x/$OTHER'}\n")
    shown = sourced(files, tmp_path, '. ./environment.sh; job_variables; echo "$BUCKET $A"')
    bucket, value = shown.split()
    assert value == f"gs://{bucket}/0/$x/$OTHER"


def test_secrets_are_named_only():
    """The scripts read them on the machine, from Secret Manager."""
    files = files_of(SPEC + "  secrets: {WANDB_API_KEY: secret://wandb/versions/3}\n")
    assert "versions access '3' --secret='wandb'" in files["machine/environment.sh"]
    assert "cloud-platform" in files["settings.sh"]
    assert "secretAccessor" in files["README.md"]
    assert "secretAccessor" not in files_of(SPEC)["README.md"]


def test_names_are_others_than_those_of_tpuctl():
    """Neither may take the other's machines for its own."""
    spec = read(SPEC.encode(), "x", environ={})
    settings = files_of(SPEC)["settings.sh"]
    for name in (bucket_name(spec, "p-1"), node_name(spec, 1), vm_name(spec), "tpuctl-deployment"):
        assert f"'{name}'" not in settings


def test_what_the_file_says_is_in_the_commands():
    """Spot, network, addresses, the VM's kind and disk."""
    text = SPEC.replace(
        "zones: [europe-west4-b, europe-west4-a]", "zones: [europe-west4-b], external_ip: false"
    )
    settings = files_of(text + "network: vpc\ntags: [a]\nvm: {machine_type: n2-standard-4, disk_gb: 80}\n")[
        "settings.sh"
    ]
    for flag in (
        "--spot", "--internal-ips", "--network=vpc", "--tags=a", "--machine-type=n2-standard-4",
        "--boot-disk-size=80GB",
    ):  # fmt: skip
        assert f"'{flag}'" in settings
    assert "--spot" not in files_of(SPEC.replace("]}", "], spot: false}"))["settings.sh"]
    assert "create-vm.sh" not in files_of(SPEC + "vm: none\n")


def test_a_job_that_writes_to_the_bucket_is_not_copied():
    """There is nothing on the disk to copy or to restore."""
    files = files_of(SPEC + "  checkpoint: {format: orbax, dir: bucket}\n")
    assert "TPUCTL_CHECKPOINT_DIR=gs://$BUCKET/checkpoints" in files["machine/environment.sh"]
    assert "rsync" not in files["machine/copy.sh"] + files["machine/run-job.sh"]
    assert "rsync" in files_of(SPEC)["machine/copy.sh"]


def test_data_come_from_their_bucket_or_from_this_computer(tmp_path):
    """A local folder is sent by push.sh; what is in a bucket is copied on the machine."""
    (tmp_path / "corpus").mkdir()
    files = files_of(SPEC + "  data: {data/wiki: gs://public/wiki, text: corpus}\n", source=tmp_path)
    assert f"'{tmp_path}/corpus'" in files["push.sh"]
    assert "gs://public/wiki" not in files["push.sh"]
    assert "'gs://public/wiki'" in files["machine/run-job.sh"]


@pytest.mark.parametrize(
    "line",
    ["tpu: {type: v5litepod-8, zones: [europe-west4-b], request: queued}", "job: {command: x, run_on: vm}"],
)
def test_what_plain_scripts_cannot_do_is_refused(line):
    """In words, before anything is written."""
    key = line.partition(":")[0]
    rest = "job: {command: x}\n" if key == "tpu" else "tpu: {type: v5litepod-8, zones: [europe-west4-b]}\n"
    with pytest.raises(UsageError, match="plain scripts cannot do this"):
        files_of(f"name: demo\n{line}\n{rest}")


def test_the_command_writes_into_a_new_folder_only(tmp_path, monkeypatch, capsys):
    """Scripts can be run at once; a folder with files is left alone, and a project is needed."""
    monkeypatch.chdir(tmp_path)
    for name in ("GOOGLE_CLOUD_PROJECT", "TPUCTL_CLOUD"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tpuctl.yaml").write_text(SPEC)
    assert run(["export", "out"]) == 2
    assert "--set project=" in capsys.readouterr().err
    assert run(["export", "out", "--set", "project=p-1", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {str(p.relative_to("out")) for p in Path("out").rglob("*") if p.is_file()} == set(files)
    assert (tmp_path / "out" / "watch.sh").stat().st_mode & 0o111
    assert run(["export", "out", "--set", "project=p-1"]) == 2
    assert "exists already" in capsys.readouterr().err
