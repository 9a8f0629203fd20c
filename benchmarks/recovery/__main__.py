"""
python -m benchmarks.recovery: kill machines, measure the way back, write the part `recovery` of the page.

About four minutes. --runs N kills each design N times; --print writes nothing.
"""

import argparse
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks import document
from benchmarks.recovery import others, ours
from benchmarks.recovery.recovery_lab import RecoveryLab

Samples = list[dict[str, float]]
PARTS = ("detect", "decide", "create", "boot", "fetch", "restore", "start")
ABOUT = """\
Real processes on the local cloud (latencies `scaled`: a create takes 1.5 s; a notice is 30 s long, as
Google's), {runs} preemptions each, in one run on {cores} cores. The preemptions are spread evenly over the loop's
period. The clock starts with the SIGKILL or the notice, and stops when the resumed job has made its first
step. Seconds, median and longest.
"""
NOTES = """\
- `detect`: until the loop knows; `decide`: until the cloud has the request; `create` is the cloud's time. Then
  the machine's: `boot` until the agent runs, `fetch` of the code, `restore` of the rest of the checkpoint,
  `start` of the job. `idle`: a TPU that is READY waits for the loop. `added`: what the design
  adds to cloud, machine and job.
- `tpuctl` polls every 15 s, and every 3 s for the notice of a machine. After a notice the last step was
  saved and committed within {rest} s (median, longest), and the next TPU trains before the old one is gone.
- The other two are our loops after their descriptions. Their periods are divided by {cron:g} (cron) and
  {babysit:g}, and what they add is multiplied by that again; the time of cloud and job is not. Their job runs
  on a VM that stays, with the checkpoints on its disk, so they fetch and restore nothing.
"""


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--print", dest="only_print", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as name:
        lab = RecoveryLab(Path(name) / "lab")
        try:
            text = table(*measured(lab, asked.runs))
        finally:
            lab.close()
    print(text)
    if not asked.only_print:
        document.put("recovery", text)


def measured(lab: RecoveryLab, runs: int) -> tuple[Samples, Samples, Samples, Samples]:
    """Return the samples of ours without and with notice, and of the two others."""
    moments = spread(runs, random.Random(1))
    with ours.watched(lab) as made:
        killed = [ours.sample(lab, made, n + 1, at, notice=False) for n, at in enumerate(moments)]
        noticed = [ours.sample(lab, made, runs + n + 1, at, notice=True) for n, at in enumerate(moments)]
    with ThreadPoolExecutor(2) as pool:
        designs = (others.CRON, others.BABYSIT)
        found = [pool.submit(others.samples, lab, d, moments) for d in designs]
        return killed, noticed, found[0].result(), found[1].result()


def spread(runs: int, chance: random.Random) -> list[float]:
    """Return moments of a period, one in each of as many equal parts: few runs then tell what many would."""
    return [(number + chance.random()) / runs for number in range(runs)]


def table(killed: Samples, noticed: Samples, cron: Samples, babysit: Samples) -> str:
    """Return the part of the page."""
    rows = [
        ("tpuctl, SIGKILL", killed), ("tpuctl, with notice", noticed),
        (others.BABYSIT.title, babysit), (others.CRON.title, cron),
    ]  # fmt: skip
    lines = [
        f"| design | {' | '.join(PARTS)} | idle | added | all |",
        "| --- |" + " --- |" * (len(PARTS) + 3),
    ]
    for title, samples in rows:
        cells = (_cell(samples, part) for part in (*PARTS, "idle", "added", "total"))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    about = ABOUT.format(runs=len(killed), cores=os.cpu_count())
    rest = _cell(noticed, "rest")
    notes = NOTES.format(cron=others.CRON.scale, babysit=others.BABYSIT.scale, rest=rest)
    return "\n".join(("## From a lost machine to the next step", "", about, *lines, "", notes))


def _cell(samples: Samples, part: str) -> str:
    values = [sample[part] for sample in samples if part in sample]
    return f"{_number(median(values))}, {_number(max(values))}" if values else ""


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    main()
