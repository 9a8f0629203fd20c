"""
Search with Optuna on a fleet: it asks for some trials, submits them as one job, reads the results, and tells them.

Optuna chooses the parameters; tpuctl runs them. Killed at any moment, the same command goes on: the study is in
search.db, and what was submitted is submitted only once. Needs `pip install optuna`, and a fleet that is up.
"""

import argparse
import csv
import json
import subprocess
import time
from pathlib import Path

import optuna

OVER = {"done", "failed", "uncommitted", "cancelled"}
JOB = """\
name: {name}
list: {name}.csv
collect: {{files: [metrics.json]}}
job:
  source: .
  setup: tpuctl-venv -r requirements.txt
  command: >-
    exec tpuctl-venv -r requirements.txt --
    python train.py --lr "$lr" --width "$width" --out "$TPUCTL_CHECKPOINT_DIR"
  target_steps: 300
  checkpoint: {{format: marker, dir: local, keep: 2}}
"""


def tpuctl(*words):
    """Run a command of the fleet and return what it prints as JSON."""
    done = subprocess.run(
        ["tpuctl", "fleet", *words, "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def ask(study, name, trials):
    """Write a generation's trials as rows of a list, once: what is there was asked for before."""
    file = Path(f"{name}.csv")
    if not file.exists():
        rows = []
        for _ in range(trials):
            trial = study.ask()
            lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
            rows.append({"trial": trial.number, "lr": lr, "width": trial.suggest_int("width", 4, 64)})
        with Path(f"{name}.new").open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        Path(f"{name}.new").replace(file)
    Path(f"{name}.yaml").write_text(JOB.format(name=name))
    return Path(f"{name}.yaml")


def results(name, pause):
    """Wait until all tasks of a job are over; return its rows."""
    while True:
        rows = tpuctl("results", name)["rows"]
        if all(row["state"] in OVER for row in rows):
            return rows
        time.sleep(pause)


def main():
    """Run some generations of trials, each with what was learnt from those before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="search")
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument(
        "--trials", type=int, default=8, help="trials in a generation: as many as there are nodes"
    )
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two looks")
    args = parser.parse_args()
    study = optuna.create_study(
        storage=f"sqlite:///{args.name}.db", study_name=args.name, load_if_exists=True
    )
    for generation in range(args.generations):
        name = f"{args.name}-{generation}"
        tpuctl("submit", str(ask(study, name, args.trials)))
        for row in results(name, args.pause):
            number, loss = int(row["trial"]), row.get("final_loss")
            good = row["state"] == "done" and isinstance(loss, float)
            study.tell(
                number, loss if good else None, skip_if_finished=True,
                state=optuna.trial.TrialState.COMPLETE if good else optuna.trial.TrialState.FAIL,
            )  # fmt: skip
        print(f"{name}: best {study.best_value:.5f} with {study.best_params}", flush=True)


if __name__ == "__main__":
    main()
