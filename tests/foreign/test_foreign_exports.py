"""
Exports, judged by the other side's own programs: opt-in, for they are 1 GB. One command: `.ci/exports`.

TPUCTL_EXPORTS names a folder with the environments `kube`, `sky` and `ray`.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from orchestrator.config.load import read
from orchestrator.config.shipped_catalog import load_catalog
from tests.scripts.deployments import deployment
from tests.scripts.test_exports import files_of

PROGRAMS, PLACE = Path(__file__).parent / "programs", os.environ.get("TPUCTL_EXPORTS", "")
COUNT = 50
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PLACE, reason="set TPUCTL_EXPORTS to a folder with their programs: .ci/exports"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Give 50 deployments with their exports, as files, and the folder that local data are named from."""
    base = tmp_path_factory.mktemp("exports")
    for name in ("code", "corpus"):
        (base / name).mkdir()
        (base / name / "a.py").write_text("1")
    found = []
    for seed in range(COUNT):
        spec = deployment(seed)[1]
        folder = base / str(seed)
        texts = {
            **files_of(spec, "jobset"), **files_of(spec, "skypilot"),
            **files_of(spec, "ray", source=base / "code", folder=folder),
        }  # fmt: skip
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        found.append((spec, folder))
    return base, found


def asked(environment, program, base, paths):
    """Return what a program says to each file."""
    done = subprocess.run(
        [f"{PLACE}/{environment}/bin/python", PROGRAMS / program, *paths], cwd=base, capture_output=True, text=True,
        check=False, env={**os.environ, "HOME": str(base), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(paths), done.stderr
    return lines


def broken(base, found, name, changes):
    """Return files in each of which one thing is wrong."""
    paths = []
    for n, change in enumerate(changes):
        objects = list(yaml.safe_load_all((found[0][1] / name).read_text()))
        change(objects[-1])
        paths.append(base / f"broken-{n}-{name}")
        paths[-1].write_text(yaml.safe_dump_all(objects))
    return paths


def pod(one):
    """Return the pod of a JobSet."""
    return one["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_kubernetes_takes_all_and_refuses_each_fault(written):
    """Its JSON schemas of Job and ServiceAccount, and the models of JobSet, which lose nothing."""
    base, found = written
    assert [
        one for one in asked("kube", "kube_objects.py", base, [f / "jobset.yaml" for _, f in found]) if one
    ] == []
    faults = (
        lambda one: pod(one).update(dnsPolicyy="ClusterFirst"),
        lambda one: pod(one)["containers"][0].update(command="bash"),
        lambda one: one["spec"].update(replicatedJobs=3),
        lambda one: one["spec"]["failurePolicy"].update(maxRestart=1),
    )
    paths = broken(base, found, "jobset.yaml", faults)
    assert all("refused" in one for one in asked("kube", "kube_objects.py", base, paths))


def test_skypilot_understands_each_task_as_the_deployment(written):
    """Its parser gives types, zones in order, spot, variables, mounts and commands of the file."""
    base, found = written
    for (spec, _), task in zip(
        found, asked("sky", "sky_tasks.py", base, [f / "task.yaml" for _, f in found]), strict=True
    ):
        assert "refused" not in task, task
        kinds = (spec.tpu.type, *spec.tpu.other_types)
        assert task["types"] == [f"tpu-{kind}" for kind in kinds for _ in spec.tpu.zones]
        assert task["zones"] == [zone for _ in kinds for zone in spec.tpu.zones]
        assert set(task["spot"]) == {spec.tpu.spot}
        assert (task["name"], task["setup"]) == (spec.name, spec.job.setup.strip())
        assert task["run"].endswith(spec.job.command.strip())
        assert task["secrets"] == sorted(spec.job.secrets)
        runtime = spec.tpu.runtime or load_catalog().runtime_for(spec.tpu.type)
        assert task["arguments"]["runtime_version"] == runtime
        assert task["recovery"]["max_restarts_on_errors"] == spec.job.failures - 1
        assert task["envs"].items() >= {k: v for k, v in spec.job.env.items() if "$" not in v}.items()
        assert len(task["mounts"]) + len(task["files"]) == 1 + len(spec.job.data)


def test_skypilot_refuses_each_fault(written):
    """So that its silence means something."""
    base, found = written
    faults = (
        lambda one: one.update(commands="x"), lambda one: one["resources"].update(spot=True),
        lambda one: one["resources"].update(use_spot="maybe"), lambda one: one.update(num_nodes="two"),
        lambda one: one["resources"]["job_recovery"].update(max_restarts_on_errors=-1),
        lambda one: one["file_mounts"].update({"~/x": "not-there"}),
        lambda one: one["file_mounts"].update({"/m": {"name": "a", "store": "gcs", "mode": "MOVE"}}),
        lambda one: one["envs"].update({"1A": "x"}),
    )  # fmt: skip
    answers = asked("sky", "sky_tasks.py", base, broken(base, found, "task.yaml", faults))
    assert [n for n, one in enumerate(answers) if "refused" not in one] == []


def test_ray_takes_each_job_and_counts_the_same_hosts(written):
    """Its checks of a runtime environment and of a submission; the variables reach a task as they are written."""
    base, found = written
    for (spec, _), job in zip(
        found, asked("ray", "ray_jobs.py", base, [f / "runtime_env.yaml" for _, f in found]), strict=True
    ):
        assert "refused" not in job, job
        kind = load_catalog().accelerator(spec.tpu.type)
        assert (job["hosts"], job["chips"]) == (kind.hosts, kind.chips_per_host)
        assert not any("$" in text for text in job["variables"].values())
    faults = (
        lambda one: one.update(working_dir=3), lambda one: one.update(py_modules="x"),
        lambda one: one["env_vars"].update(A=1), lambda one: one.update(working_dir="/not/there"),
        lambda one: one["env_vars"].update(TPUCTL_GENERATION="v5e"), lambda one: one.update(excludes=7),
    )  # fmt: skip
    answers = asked("ray", "ray_jobs.py", base, broken(base, found, "runtime_env.yaml", faults))
    assert [n for n, one in enumerate(answers) if "refused" not in one] == []


def test_ray_runs_the_job_again_after_a_failure_and_after_the_loss_of_a_host(tmp_path):
    """Four hosts without TPUs: worker 2 fails once, host 3 is killed once; nothing runs twice."""
    shared, source = tmp_path / "shared", tmp_path / "source"
    shared.mkdir()
    source.mkdir()
    command = f"""
    cd "{shared}"
    me="$TPUCTL_WORKER_ID"
    wait_for() {{ while [ ! -e "$1" ] && [ ! -e end ]; do sleep 0.1; done; }}
    echo "$me of $TPUCTL_WORKERS, $A" >"$TPUCTL_CHECKPOINT_DIR/said"
    if [ "$me" = 2 ] && [ ! -e failed ]; then wait_for began; touch failed; exit 3; fi
    if [ "$me" = 3 ] && [ ! -e began ]; then touch began; wait_for end; fi
    if [ "$me" = 3 ] && [ ! -e lost ]; then touch lost lose-host-3; wait_for end; fi
    wait_for lost
    if [ -e "$me.runs" ] && kill -0 "$(cat "$me.runs")" 2>/dev/null; then touch twice; fi
    echo $$ >"$me.runs"
    for n in 0 1 2 3; do wait_for "$n.runs"; done
    """
    text = yaml.safe_dump({
        "name": "demo", "tpu": {"type": "v5litepod-16", "zones": ["europe-west4-b"]},
        "job": {"command": command, "env": {"A": "gs://$TPUCTL_BUCKET/$$x"}, "failures": 3},
    })  # fmt: skip
    spec = read(text.encode(), "x", environ={})
    for name, content in files_of(spec, "ray", source=source, folder=tmp_path / "out").items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(content)
    (tmp_path / "out" / "submit.sh").chmod(0o755)
    done = subprocess.run(
        [f"{PLACE}/ray/bin/python", PROGRAMS / "ray_slice.py", tmp_path / "out", shared],
        text=True, capture_output=True, check=False,
        env={**os.environ, "PATH": f"{PLACE}/ray/bin:{os.environ['PATH']}", "RAY_DEDUP_LOGS": "0"},
    )  # fmt: skip
    # What a lost machine would have taken with it.
    (shared / "end").touch()
    assert "status 0" in done.stdout, done.stdout + done.stderr
    assert "a host is lost" in done.stdout
    assert "starts that failed: 1 of 3" in done.stdout
    assert not (shared / "twice").exists()
    said = {(path / "said").read_text() for path in shared.glob("checkpoints*")}
    assert {text.partition(",")[0] for text in said} == {f"{n} of 4" for n in range(4)}
    assert all(text.endswith("/$x\n") for text in said)
