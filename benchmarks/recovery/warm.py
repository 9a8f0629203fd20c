"""
python -m benchmarks.recovery.warm: machines that install with pip, cold and warm; writes the part `warm`.

About a quarter of an hour; packages come from pip's index. --runs N kills each design N times; --recipes measures
the setup of examples on a first and a second machine too; --print writes nothing.
"""

import argparse
import json
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks import document
from benchmarks.recovery import others, ours
from benchmarks.recovery.__main__ import Samples, spread
from benchmarks.recovery.recovery_lab import RecoveryLab, newest, wait_for
from tests.e2e.process_lab import REPO

POLL = 3
PYTHON = "3.11"
"""pip of the image's 3.10 finds no set of versions for Orbax within minutes."""
PINS = ("jax==0.10.2", "orbax-checkpoint==0.12.8", "optax==0.2.8")
SETUP = f"python3 -m pip install -q --disable-pip-version-check {' '.join(PINS)}"
REINSTALL = others.Design("reinstall", "a loop that looks each 20 s, installs anew and runs", 20.0, 10.0)
RECIPES = ("jax-lm", "hf-clm", "bert-tf2")
PARTS = ("detect", "decide", "create", "boot", "fetch", "unpack", "setup", "restore", "start")
GOAL, SHARE = 15.0, 0.2
WHY = """\
- Why: uv takes packages from a registry or a cache on this very computer, so that installing is about as fast as
  unpacking, and `setup` of `hf-clm` and `bert-tf2` also prepares data, on each machine again."""
JOB = """\
# Run train.py; note time and process after each step, and what was computed until the first one.
import os, runpy, sys, time
nap, out = time.sleep, os.environ["BENCH_STEPS"]
def after_a_step(seconds):
    # Its libraries pause, too: only the pause in train.py comes after a step.
    if sys._getframe(1).f_code.co_filename.endswith("train.py"):
        if not os.path.exists(f"{out}.{os.getpid()}"):
            with open(f"{out}.{os.getpid()}", "w") as file:
                file.write(str(time.process_time()))
        with open(out, "a") as file:
            file.write(f"{time.time()} {os.getpid()}\\n")
    nap(seconds)
time.sleep = after_a_step
runpy.run_path("train.py", run_name="__main__")
"""
ABOUT = """\
The example `jax-lm` with `{setup}` in `job.setup`, on machines with Python 3.11, {runs}
preemptions by SIGKILL for each row, in one run on {cores} cores that other programs used too; the
machines' disks are {disks}. `tpuctl` polls every {poll} s in both of its rows. *Cold* is `warm_start: false`.
Seconds, median and longest.
"""
NOTES = """\
- `unpack`: packages and compiled programs of an earlier machine come back; `setup`: `pip` installs, or finds
  installed; `start`: imports, compilation by XLA and the first step. The other columns are as above.
- The loop is ours, after SkyPilot's managed jobs: it looks each 20 s, replaces the TPU, runs the same
  `pip install` in a new environment, and starts the job, whose checkpoints and Python are on a disk that stays.
  Its period is divided by {scale:g}, and what it adds multiplied by that again.
"""


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--recipes", action="store_true")
    parser.add_argument("--print", dest="only_print", action="store_true")
    asked = parser.parse_args()
    rows = {}
    moments = spread(asked.runs, random.Random(1))
    for title, warm in (("tpuctl, cold", False), ("tpuctl, warm", True)):
        with running_lab(f"jax-{'warm' if warm else 'cold'}") as lab, watched(lab, warm=warm) as made:
            rows[title] = [
                lost(lab, made, number, moment, warm=warm) for number, moment in enumerate(moments, 1)
            ]
        print(title, rows[title], flush=True)
    with running_lab("jax-peer") as lab:
        rows[REINSTALL.title] = others.samples(
            lab, REINSTALL, moments, put_job, {**environment(lab), "BENCH_PINS": " ".join(PINS)}
        )
    recipes: dict[str, tuple[float, float]] = {}
    for name in (None, *(RECIPES if asked.recipes else ())):
        if name is not None:
            recipes[name] = setups(name)
        text = table(rows, recipes)
        print(text, flush=True)
        if not asked.only_print:
            document.put("warm", text)


@contextmanager
def running_lab(name: str) -> Iterator[RecoveryLab]:
    """Give a local cloud of its own: no machine finds there what another row has downloaded."""
    with tempfile.TemporaryDirectory(prefix="bench-warm-") as folder:
        # Nor what uv has downloaded for other local clouds of this computer.
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        Path(folder, "cache").mkdir(mode=0o700)
        lab = RecoveryLab(Path(folder) / "lab", name, "--python", PYTHON)
        try:
            yield lab
        finally:
            lab.close()


def put_job(folder: Path, example: str = "jax-lm") -> None:
    """Put the example there, with what notes its steps."""
    for source in (REPO / "examples" / example).iterdir():
        if source.is_file():
            (folder / source.name).write_bytes(source.read_bytes())
    (folder / "job.py").write_text(JOB)


def environment(lab: RecoveryLab) -> dict[str, str]:
    """Return the job's variables."""
    return {
        "BENCH_STEPS": str(lab.folder / "steps"),
        "JAX_LM_STEPS": "1000000",
        "JAX_LM_STEP_SECONDS": "0.1",
    }


@contextmanager
def watched(lab: RecoveryLab, *, warm: bool) -> Iterator[Path]:
    """Bring the job up and watch it; yield the file of its steps."""
    put_job(lab.work)
    job = {
        "setup": SETUP, "command": "exec python3 job.py", "env": environment(lab), "warm_start": warm,
        "checkpoint": {"format": "orbax"},
    }  # fmt: skip
    with running(lab, job):
        yield lab.folder / "steps"


@contextmanager
def running(lab: RecoveryLab, job: dict[str, object]) -> Iterator[None]:
    """Write the deployment file, bring it up and watch it."""
    (lab.work / "tpuctl.yaml").write_text(
        f"name: {lab.name}\ntpu: {{type: v5litepod-8, zones: [europe-west4-b]}}\nvm: none\n"
        f"job: {json.dumps(job)}\nwatch: {{poll: {POLL}s}}\n"
    )
    lab.tpuctl("up", seconds=900.0)
    watch = lab.start("watch")
    try:
        yield
    finally:
        watch.send_signal(signal.SIGINT)
        lab.end(watch, None)


def lost(lab: RecoveryLab, made: Path, number: int, moment: float, *, warm: bool) -> dict[str, float]:
    """Take the machine away, once it has kept what it installed; return each part."""
    wait_for("the job trains", lambda: newest(made) or None)
    if warm:
        wait_for("it is kept", lambda: lab.objects("caches/environment/") or None)
        wait_for("it is kept", lambda: lab.objects("caches/compiled/") or None)
    found = ours.sample(lab, made, number, moment, notice=False, name=lab.name, poll=POLL)
    return {**found, "cpu": float(Path(f"{made}.{newest(made)}").read_text())}


def setups(example: str) -> tuple[float, float]:
    """Return the seconds from the code to the end of the setup, on a first machine and on the next one."""
    with running_lab(example) as lab:
        put_job(lab.work, example)
        text = (lab.work / "tpuctl.yaml").read_text()
        (lab.work / "tpuctl.yaml").write_text(endless(text))
        lab.tpuctl("up", seconds=1800.0)
        watch = lab.start("watch")
        try:
            first = wait_for("the setup", lambda: ready(lab, 1))
            wait_for("it is kept", lambda: lab.objects("caches/environment/") or None)
            lab.kill(f"{example}-tpu-g1")
            return first, wait_for("the setup", lambda: ready(lab, 2))
        finally:
            watch.send_signal(signal.SIGINT)
            lab.end(watch, None)


def endless(text: str) -> str:
    """Let the example train until it is killed, and poll as the other rows do."""
    for steps in ("120", "200"):
        text = text.replace(f'STEPS: "{steps}"', 'STEPS: "100000"').replace(f"  target_steps: {steps}\n", "")
    return text.replace("poll: 15s", f"poll: {POLL}s")


def ready(lab: RecoveryLab, number: int) -> float | None:
    """Return the seconds from the code to the end of the setup of an incarnation, None before."""
    times = next((heartbeat["timings"] for heartbeat in lab.heartbeats(number)), {})
    return times["setup_done"] - times["fetched"] if "setup_done" in times else None


def table(rows: dict[str, Samples], recipes: dict[str, tuple[float, float]]) -> str:
    """Return the part of the page."""
    disks = "in memory" if tempfile.gettempdir().startswith("/dev/shm") else "on one disk"  # noqa: S108
    runs = len(next(iter(rows.values())))
    about = ABOUT.format(setup=SETUP, runs=runs, cores=os.cpu_count(), poll=POLL, disks=disks)
    heads = (*PARTS, "all", "all - create")
    lines = [f"| design | {' | '.join(heads)} |", "| --- |" + " --- |" * len(heads)]
    for title, samples in rows.items():
        full = [{**one, "all": one["total"], "all - create": one["total"] - one["create"]} for one in samples]
        lines.append(f"| {title} | {' | '.join(cell([o[p] for o in full if p in o]) for p in heads)} |")
    cold, warm, _ = (list(samples) for samples in rows.values())
    got = median(one["total"] - one["create"] for one in warm)
    was = median(one["setup"] + one["start"] for one in cold)
    computed = [median(one["cpu"] for one in samples) for samples in (cold, warm)]
    verdict = "kept" if got <= GOAL else f"missed by {got - GOAL:.1f} s. {missed_text(warm)}"
    notes = [NOTES.format(scale=REINSTALL.scale).rstrip()]
    notes.append(
        f"- From the SIGKILL to the first new step, without the cloud's create: {got:.1f} s (median); cold, setup\n"
        f"  and start alone take {was:.1f} s. The goal is {GOAL:g} s: {verdict}"
    )
    notes.append(
        f"- Other programs do not change what a job computes until its first step: {computed[0]:.1f} CPU-s cold,\n"
        f"  {computed[1]:.1f} warm."
    )
    for name, (first, second) in recipes.items():
        share = second / first
        verdict = "kept" if share <= SHARE else "missed"
        notes.append(
            f"- `setup` of `{name}`, from the code to its end: {first:.1f} s on the first machine, {second:.1f} s\n"
            f"  on the second: {share:.2f}, the goal is {SHARE}: {verdict}."
        )
    if any(second > SHARE * first for first, second in recipes.values()):
        notes.append(WHY)
    return "\n".join(("## Machines that install: cold and warm", "", about, *lines, "", *notes))


def missed_text(warm: Samples) -> str:
    """Return the three longest parts of a warm way back, in words."""
    parts = {part: median(one.get(part, 0.0) for one in warm) for part in PARTS if part != "create"}
    longest = sorted(parts, key=lambda part: -parts[part])[:3]
    return "Most of it: " + ", ".join(f"{part} {parts[part]:.1f} s" for part in longest) + "."


def cell(values: list[float]) -> str:
    """Return median and longest."""
    return f"{median(values):.1f}, {max(values):.1f}" if values else ""


if __name__ == "__main__":
    main()
