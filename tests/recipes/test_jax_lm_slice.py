"""examples/jax-lm on a slice of four workers: they find each other, and losing one costs but a few steps."""

import signal
from contextlib import ExitStack

import pytest

from tests.e2e.process_lab import ProcessLab, kill
from tests.emulator.machines_lab import LabView, machine, serving
from tests.kit.addresses import free_port
from tests.recipes.jax_lm import COMMAND, DataBucket, settings
from tests.recipes.kit import Recipe, RecipeCommand, copy, hold, hold_at, losses, prepared
from tests.recipes.run import NOTICE_SECONDS, RUN_TIMEOUT, leave, start_cloud

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("jax-lm")]
STEPS = 32
WORKERS = 4


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its environment made."""
    folder = tmp_path_factory.mktemp("jax-lm-slice")
    one = prepared("jax-lm", folder, JAX_PLATFORMS="cpu", **settings(STEPS, 1, folder / "compiled"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def metadata():
    """Serve the metadata of four workers, each on its own address; return these addresses with ports."""
    hosts = [f"127.83.7.{20 + worker}" for worker in range(WORKERS)]
    ports = [free_port(host) for host in hosts]
    endpoints = ",".join(f"t1v-n-1-w-{worker}:{77 + worker}:{host}" for worker, host in enumerate(hosts))
    views = {
        host: LabView(
            machine(host, id=f"w{worker}"),
            **{
                "agent-worker-number": str(worker),
                "worker-network-endpoints": endpoints,
                "tpu-env": f"ACCELERATOR_TYPE: 'v5litepod-16'\nWORKER_ID: '{worker}'\n",
            },
        )
        for worker, host in enumerate(hosts)
    }
    with ExitStack() as stack:
        for host, port in zip(hosts, ports, strict=True):
            stack.enter_context(serving(views.get, host, port))
        yield [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]


def start(
    recipe: Recipe, metadata: list[str], places: list[dict[str, str]], held_at: int | None = None
) -> list[RecipeCommand]:
    """Start the training on four machines that differ by their metadata server only."""
    common = {"TPUCTL_WORKERS": str(WORKERS), "JAX_LM_OUT": "gs://data/checkpoints"}
    return [
        recipe.start(COMMAND, held_at, **common, GCE_METADATA_IP=where, **place)
        for where, place in zip(metadata, places, strict=True)
    ]


def places_of(served: list[dict[str, str]]) -> list[dict[str, str]]:
    """Give worker 0 the first address of the bucket, the others the second."""
    return [served[0], *[served[1]] * (WORKERS - 1)]


@pytest.fixture(scope="module")
def straight(recipe, metadata) -> dict[int, str]:
    """
    Return the losses of a run of four that nothing interrupts.

    All four print the same, and worker 0 alone declares steps complete, each once.
    """
    bucket = DataBucket()
    with bucket.served("worker 0", "another") as served:
        texts = [run.wait() for run in start(recipe, metadata, places_of(served))]
    found = losses("\n".join(texts))
    assert all(losses(text) == found for text in texts)
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 1.0
    assert bucket.committed() == [("worker 0", str(step)) for step in (8, 16, 24, 32)]
    return found


def test_one_dead_worker_ends_all_and_a_stop_is_common(recipe, metadata, straight):
    """
    SIGKILL of the coordinator ends the others too; SIGTERM to one after the other makes them save one step.

    Every start uses the same port.
    """
    bucket = DataBucket()
    with bucket.served("worker 0", "another") as served:
        places = places_of(served)
        first = start(recipe, metadata, places, 11)
        first[3].wait_for(lambda: ("worker 0", "8") in bucket.committed())
        first[0].kill()
        for run in first:
            run.go_on()
        for run in first[1:]:
            assert run.process.wait(RUN_TIMEOUT) != 0

        second = start(recipe, metadata, places, 14)
        second[1].until("^step 14 ")
        second[2].process.send_signal(signal.SIGTERM)
        for run in second:
            run.go_on()
        second[1].until("^step 15 ")
        for run in second:
            if run.process.poll() is None:
                run.process.send_signal(signal.SIGTERM)
        ends = [run.wait(128 + signal.SIGTERM) for run in second]
        (saved,) = {max(losses(text)) for text in ends}
        assert all(f"asked to stop: saved step {saved}" in text for text in ends)
    assert 14 <= saved < 24
    found = losses("\n".join([*(run.text() for run in first), *ends]))
    assert found == {step: straight[step] for step in range(1, saved + 1)}


def one_of(lab: ProcessLab, worker: int) -> int:
    """Return the process that trains on one of the machines."""
    environs = dict(lab.processes())
    mark = f"\0TPUCTL_WORKER_ID={worker}\0".encode()
    (pid,) = [pid for pid in lab.jobs(b"train.py") if mark in environs[pid] + b"\0"]
    return pid


@pytest.mark.e2e
def test_whole_life_of_a_slice_on_the_local_cloud(lab, recipe, straight):
    """
    A killed process restarts the gang, a killed machine moves the slice, a notice stops all at one step.

    The losses are those of an unbroken run, bit for bit, on every worker.
    """
    lab.name = "jax-lm"
    copy("jax-lm", lab.work)
    hold(lab.work)
    gate = lab.folder / "held-at"
    hold_at(gate, 11)
    env = {**settings(STEPS, 1, recipe.folder.parent / "compiled"), "HELD_AT": str(gate)}
    values = {
        "tpu.type": "v5litepod-16", "vm": "none", "watch.poll": "1s", "job.target_steps": STEPS,
        **{f"job.env.{key}": value for key, value in env.items()},
    }  # fmt: skip
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    start_cloud(lab, NOTICE_SECONDS)
    lab.tpuctl("up", *words, seconds=RUN_TIMEOUT)
    watch = lab.start("watch", *words)

    def committed() -> bool:
        return [b["committed_step"] or 0 for b in lab.heartbeats(1)] >= [8] * WORKERS

    lab.wait_for("step 8 in the bucket", committed, RUN_TIMEOUT)
    kill(one_of(lab, 2))
    heartbeats = lab.wait_for("attempt 2", lambda: lab.at(9, workers=WORKERS, attempt=2), RUN_TIMEOUT)
    assert {b["incarnation"] for b in heartbeats} == {1}

    lab.tpuctl("local", "preempt", "jax-lm-tpu-g1", "--worker", "0", "--no-notice")
    hold_at(gate, 14)
    lab.wait_for("g2", lambda: lab.at(14, workers=WORKERS, incarnation=2), RUN_TIMEOUT)
    leave(lab, 2, WORKERS)
    gate.unlink()
    lab.end(watch, seconds=RUN_TIMEOUT)

    logs = {(g, w): lab.logs(g, w) for g in (1, 2, 3) for w in range(WORKERS)}
    assert losses("\n".join(logs.values())) == straight
    for worker in range(WORKERS):
        assert losses("\n".join(logs[g, worker] for g in (1, 2, 3))) == straight
    (saved,) = {b["committed_step"] for b in lab.heartbeats(2)}
    assert {b["notice"] for b in lab.heartbeats(2)} == {True}
    # The last lines of a machine may stay on it; the save itself is one for all.
    assert any(f"asked to stop: saved step {saved}" in logs[2, worker] for worker in range(WORKERS))
    assert [(b["phase"], b["committed_step"]) for b in lab.heartbeats(3)] == [("done", STEPS)] * WORKERS
