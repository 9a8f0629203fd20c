"""Exports to other systems: their rules hold, no setting is passed over, and the script does what it says."""

import copy
import hashlib
import json
import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.main import run
from orchestrator.config.load import read
from orchestrator.config.others.recognise import convert
from orchestrator.config.setting_types import settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.scripts.exports.jobset import jobset_files
from orchestrator.scripts.exports.ray import ray_files
from orchestrator.scripts.exports.skypilot import skypilot_files
from orchestrator.scripts.exports.unsupported import (
    EVERYWHERE,
    TARGETS,
    UNSUPPORTED,
    entry,
    rows,
    unsupported,
)
from tests.scripts.cluster_rules import problems, together
from tests.scripts.deployments import deployment
from tests.scripts.test_render import NASTY

ROOT = Path(__file__).parents[2]
SPEC = "name: demo\ntpu: {type: v5litepod-16, zones: [europe-west4-b]}\njob: {command: python3 train.py}\n"
SEEDS = range(50)


def spec_of(text):
    """Return the Spec of a file."""
    return read(text.encode(), "tpuctl.yaml", environ={})


def files_of(spec, target, slices=1, source=Path("/code"), folder=Path("/out")):
    """Return the files of an export, without those that people read."""
    kind = load_catalog().accelerator(spec.tpu.type)
    if target == "jobset":
        return jobset_files(spec, "p-1", kind, "0" * 64, slices)
    if target == "skypilot":
        return skypilot_files(spec, "p-1", kind.hosts)
    return ray_files(spec, "p-1", kind, source, folder)


def manifests(spec, slices=1):
    """Return the objects as a cluster reads them."""
    texts = files_of(spec, "jobset", slices).values()
    return [one for text in texts for one in yaml.safe_load_all(text)]


def container(objects):
    """Return the container of the job's pods."""
    job = next(one for one in objects if one["kind"] == "JobSet")
    return job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_takes_the_manifests(seed):
    """CRDs with unknown fields refused, their CEL rules, the webhooks' rules, and what must fit together."""
    _, spec = deployment(seed)
    slices = seed % 4 + 1 if spec.job.checkpoint.dir == "bucket" else 1
    objects = manifests(spec, slices)
    assert [one["kind"] for one in objects] == [
        "ResourceFlavor",
        "ClusterQueue",
        "LocalQueue",
        "ServiceAccount",
        "JobSet",
    ]
    assert [found for one in objects for found in problems(one)] == []
    assert together(objects) == []


def set_in(*path):
    """Return a change of one object: the value is the last part of the path."""

    def change(one):
        for part in path[:-2]:
            one = one[part]
        one[path[-2]] = path[-1]

    return change


JOB = ("spec", "replicatedJobs", 0, "template", "spec")
POD = (*JOB, "template", "spec")
GROUP = ("spec", "resourceGroups", 0)
FAULTS = {
    "JobSet": (
        set_in("spec", "failurePolicy", "maxRestart", 3),
        set_in(*POD, "dnsPolicyy", "ClusterFirst"),
        set_in(*JOB, "completionMode", "Index"),
        set_in(*JOB, "parallelism", "four"),
        set_in(*POD, "restartPolicy", "Always"),
        set_in(*POD, "restartPolicy", "OnFailure"),
        set_in(*POD, "nodeSelector", "cloud.google.com/gke-spot", True),
        set_in(*POD, "containers", 0, "volumeMounts", 0, "name", "elsewhere"),
        set_in("spec", "failurePolicy", "rules", 0, "action", "RestartAll"),
        set_in("spec", "failurePolicy", "rules", 0, "name", "1st"),
        set_in("spec", "failurePolicy", "rules", 0, "onJobFailureReasons", ["Preempted"]),
        set_in("spec", "startupPolicy", {"startupPolicyOrder": "AnyHow"}),
        set_in("metadata", "name", "x" * 60),
        set_in("apiVersion", "jobset.x-k8s.io/v1"),
    ),
    "ClusterQueue": (
        set_in(*GROUP, "flavors", 0, "resources", 0, "nominalQuota", -64),
        set_in(*GROUP, "coveredResources", ["google.com/tpu", "cpu"]),
        set_in(
            "spec",
            "preemption",
            {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}},
        ),
        set_in("spec", "queueingStrategy", "LIFO"),
        set_in("spec", "flavours", []),
    ),
    "LocalQueue": (set_in("spec", "clusterQueue", "Not A Name"), set_in("spec", "clusterqueue", "demo")),
    "ResourceFlavor": (
        set_in("spec", "nodeLabels", "cloud.google.com/gke-tpu-topology", "4 x 4"),
        set_in("spec", "tolerations", [{"operator": "Exists", "value": "x", "key": "a"}]),
        set_in("spec", "nodeTaints", [{"key": "a", "effect": "Sometimes"}]),
    ),
    "ServiceAccount": (set_in("metadata", "name", "Not A Name"),),
}


@pytest.mark.parametrize(
    ("kind", "index"), [(kind, n) for kind, found in FAULTS.items() for n in range(len(found))]
)
def test_a_seeded_fault_is_refused(kind, index):
    """What judges the manifests can fail: an unknown field, a wrong word, a broken rule of CRD or webhook."""
    broken = copy.deepcopy(next(one for one in manifests(spec_of(SPEC)) if one["kind"] == kind))
    assert problems(broken) == []
    FAULTS[kind][index](broken)
    assert problems(broken)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("LocalQueue", set_in("metadata", "name", "other")),
        ("LocalQueue", set_in("spec", "clusterQueue", "other")),
        ("ClusterQueue", set_in(*GROUP, "flavors", 0, "name", "other")),
        ("ClusterQueue", set_in(*GROUP, "flavors", 0, "resources", 0, "nominalQuota", 15)),
        ("ResourceFlavor", set_in("spec", "nodeLabels", {})),
        ("ServiceAccount", set_in("metadata", "name", "other")),
    ],
)  # fmt: skip
def test_objects_that_do_not_fit_together_are_found(kind, change):
    """A queue that is not there, a quota that admits nothing: a cluster would only wait."""
    objects = copy.deepcopy(manifests(spec_of(SPEC)))
    change(next(one for one in objects if one["kind"] == kind))
    assert together(objects)


def as_kubernetes(text):
    """Return a word of `command` as a container gets it: `$$` is a dollar sign, `$(NAME)` a variable."""
    return re.sub(r"\$(\$|\((\w+)\))", lambda m: "$" if m[1] == "$" else f"<{m[2]} is replaced>", text)


def script_of(spec, root, objects=None):
    """Return what a pod's bash runs, with the pod's folders below *root*."""
    text = as_kubernetes(container(objects or manifests(spec))["command"][2])
    return text.replace("/tpuctl/", f"{root}/")


@pytest.fixture
def pod(tmp_path):
    """Give folders such as a pod has: the mounted bucket with the code, and an empty one to work in."""
    (tmp_path / "bucket" / "code").mkdir(parents=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "src").mkdir()

    def start(spec, **environment):
        packed = tmp_path / "bucket" / "code" / f"{'0' * 64}.tar.gz"
        subprocess.run(["tar", "-czf", packed, "-C", tmp_path / "src", "."], check=True)
        digest = hashlib.sha256(packed.read_bytes()).hexdigest()
        script = script_of(spec, tmp_path).replace(f"{'0' * 64}  ", f"{digest}  ")
        return subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path / "code", text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": "2", **environment},
        )  # fmt: skip

    return tmp_path, start


def test_a_pod_runs_the_job_with_code_variables_and_data(pod):
    """The script of the manifest, as it is: bundle, setup, variables, data, a folder for this worker."""
    root, start = pod
    (root / "src" / "train.sh").write_text(
        'echo "$TPUCTL_WORKER_ID of $TPUCTL_WORKERS: $A $(cat text/a)"; touch "$TPUCTL_CHECKPOINT_DIR/one"\n'
    )
    (root / "bucket" / "data" / "text").mkdir(parents=True)
    (root / "bucket" / "data" / "text" / "a").write_text("words")
    env = "env: {A: 'gs://$TPUCTL_BUCKET/$$x'}"
    job = f"job: {{command: . ./train.sh, setup: echo ready, {env}, data: {{text: corpus}}}}"
    process = start(spec_of(SPEC.replace("job: {command: python3 train.py}", job)))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert re.fullmatch(r"ready\n2 of 4: gs://demo-jobset-\w+/\$x words\n", out)
    assert (root / "bucket" / "checkpoints-worker-2" / "one").exists()


def test_code_that_is_not_what_was_exported_does_not_run(pod):
    """A bundle that was cut or exchanged has another sha256."""
    root, start = pod
    (root / "src" / "train.py").write_text("raise SystemExit('it ran')")
    spec = spec_of(SPEC)
    process = start(replace(spec, job=replace(spec.job, command="echo it ran")))
    process.communicate(timeout=60)
    assert process.returncode == 0
    (root / "bucket" / "code" / f"{'0' * 64}.tar.gz").write_bytes(b"something else")
    script = script_of(spec, root)
    done = subprocess.run(
        ["bash", "-c", script], cwd=root / "code", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "it ran" not in done.stdout


def test_a_stop_signal_reaches_the_job_and_its_status_comes_back(pod):
    """Kubernetes sends TERM to bash; the job gets the signal of the file, saves, and ends with its own status."""
    _, start = pod
    command = "trap 'echo saved; exit 7' USR1; echo begins; while :; do sleep 0.1; done"
    process = start(spec_of(SPEC.replace("python3 train.py", json.dumps(command) + ", stop_signal: USR1")))
    assert process.stdout.readline() == "begins\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("saved\n", 7)


@pytest.mark.parametrize("text", [one for one in NASTY if "\0" not in one and one.strip()])
def test_no_text_of_the_file_leaves_its_word(text, tmp_path):
    """Commands come through YAML, Kubernetes and bash, or through SkyPilot's file, as they are."""
    spec = spec_of(SPEC)
    spec = replace(spec, job=replace(spec.job, command=text))
    (tmp_path / "setsid").write_text('#!/bin/bash\nprintf %s "$3" >"$OUT"\n')
    (tmp_path / "setsid").chmod(0o755)
    script = "\n".join(
        line for line in script_of(spec, tmp_path).split("\n") if not line.startswith(("echo", "tar"))
    )
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "OUT": str(tmp_path / "out"),
        "JOB_COMPLETION_INDEX": "0",
    }
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "out").read_bytes().decode() == text
    assert not (tmp_path / "C").exists()
    task = yaml.safe_load(
        files_of(replace(spec, tpu=replace(spec.tpu, type="v5litepod-8")), "skypilot")["task.yaml"]
    )
    assert task["run"].endswith(text.strip())


@pytest.mark.parametrize("seed", SEEDS)
def test_our_task_of_skypilot_comes_back_as_the_same_deployment(seed):
    """`init --from` reads what `export --to skypilot` wrote: what both know is the same."""
    _, spec = deployment(seed)
    back = spec_of(convert(files_of(spec, "skypilot")["task.yaml"].encode(), "task.yaml", "x").text)
    for part in ("name",):
        assert getattr(back, part) == getattr(spec, part)
    for part in ("type", "zones", "other_types", "spot", "across_regions"):
        assert getattr(back.tpu, part) == getattr(spec.tpu, part), part
    assert back.tpu.runtime in (spec.tpu.runtime, load_catalog().runtime_for(spec.tpu.type))
    assert back.tpu.request == ("queued" if spec.tpu.request == "queued" else "node")
    for part in ("source", "data", "failures", "image"):
        assert getattr(back.job, part) == getattr(spec.job, part), part
    assert set(back.job.secrets) == set(spec.job.secrets)
    assert back.job.setup == spec.job.setup.strip()
    assert back.job.env == {name: text for name, text in spec.job.env.items() if "$" not in text}
    assert back.job.command.endswith(spec.job.command.strip())
    alone = load_catalog().accelerator(spec.tpu.type).hosts == 1 and spec.job.checkpoint.dir != "bucket"
    if alone and not any("$" in text for text in spec.job.env.values()):
        assert back.job.command == spec.job.command.strip()


def test_no_setting_is_passed_over():
    """Each one is in all exports, or the table says what becomes of it."""
    for key, setting in settings().items():
        if not setting.section:
            assert (key in EVERYWHERE) != bool(entry(key)), key
    assert all(key in settings() for key in (*EVERYWHERE, *UNSUPPORTED))


OTHER = {
    "name": "other", "project": "p-2", "service_account": "a@p-1.iam.gserviceaccount.com",
    "bucket.location": "us-east1", "tpu.runtime": "v2-alpha-x",
    "tpu.type": "v5litepod-32", "tpu.zones": ("us-central1-a",), "tpu.across_regions": True,
    "tpu.other_types": ("v5litepod-32",), "tpu.reservation": "ours", "tpu.spot": False,
    "job.image": "europe-docker.pkg.dev/p/r/train:1",
    "job.command": "x", "job.source": "code", "job.setup": "x", "job.env": {"X": "1"}, "job.failures": 9,
    "job.data": {"x": "gs://b/x"}, "job.secrets": {"X": "secret://x"}, "job.stop_signal": "INT", "job.grace": 44.0,
    "job.checkpoint.format": "orbax", "job.checkpoint.dir": "bucket", "job.checkpoint.marker": "OK",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("key", OTHER)
def test_what_the_table_calls_preserved_is_in_the_files(key, target):
    """Another value gives other files, where the table does not say that it is unsupported."""
    spec = spec_of(SPEC)
    changed = put(spec, key.split("."), OTHER[key])
    retained = key in EVERYWHERE or not UNSUPPORTED[entry(key)][TARGETS.index(target)]
    if retained and key not in ("project", "tpu.across_regions", "bucket.location", "job.source"):
        assert files_of(changed, target) != files_of(spec, target)
    assert (entry(key) in {row.what for row in unsupported(changed, target)}) == (not retained)


def put(value, path, new):
    """Return a value with another one deep in it."""
    if not path:
        return new
    return replace(value, **{path[0]: put(getattr(value, path[0]), path[1:], new)})


def test_values_of_secrets_are_in_no_file():
    """JobSet and SkyPilot get names; Ray, which shows all variables, gets nothing."""
    spec = spec_of(SPEC.replace("train.py", "train.py, secrets: {WANDB_API_KEY: secret://wandb/versions/3}"))
    assert container(manifests(spec))["env"][0]["valueFrom"] == {
        "secretKeyRef": {"name": "demo-secrets", "key": "WANDB_API_KEY"}
    }
    assert yaml.safe_load(files_of(spec, "skypilot")["task.yaml"])["secrets"] == {"WANDB_API_KEY": None}
    assert "WANDB" not in str(files_of(spec, "ray"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--set", "tpu.type=v3-8", "--set", "tpu.zones=[europe-west4-a]"),
            "GKE's name for v3-8 is not known here",
        ),
        (("--set", "job.run_on=vm"), "another system cannot do this"),
        (("--slices", "2"), "must write to the bucket itself"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_before_anything_is_written(
    words, said, tmp_path, monkeypatch, capsys
):
    """With what would help."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tpuctl.yaml").write_text(SPEC)
    assert run(["export", "--to", "jobset", "out", "--set", "project=p-1", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_the_command_writes_the_files_and_says_what_is_lost(target, tmp_path, monkeypatch, capsys):
    """A person sees a table, a program a list; both stand in README.md too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tpuctl.yaml").write_text(SPEC + "watch: {budget_usd: 5}\n")
    (tmp_path / "train.py").write_text("print(1)\n")
    assert run(["export", "--to", target, "out", "--set", "project=p-1"]) == 0
    out = capsys.readouterr().out
    assert run(["export", "--to", target, "out2", "--set", "project=p-1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {str(p.relative_to("out2")) for p in Path("out2").rglob("*") if p.is_file()} == set(
        document["files"]
    )
    readme = (tmp_path / "out" / "README.md").read_text()
    for row in document["unsupported"]:
        assert row["what"] in out
        assert f"| {row['what']} | {row['message']} |" in readme
    assert "watch.budget_usd" in out
    if target == "jobset":
        (packed,) = Path("out/code").iterdir()
        assert hashlib.sha256(packed.read_bytes()).hexdigest() == packed.name.partition(".")[0]
        assert packed.name in Path("out/jobset.yaml").read_text()


def test_the_page_has_the_whole_table():
    """docs/export.md, row for row; TPUCTL_UPDATE_GOLDEN=1 writes it."""
    page = ROOT / "docs" / "export.md"
    head, title, _ = page.read_text().partition(
        "| setting | JobSet | SkyPilot | Ray |\n| --- | --- | --- | --- |\n"
    )
    whole = head + title + "".join(f"| `{key}` | {' | '.join(whys)} |\n" for key, *whys in rows())
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        page.write_text(whole)
    assert page.read_text() == whole
