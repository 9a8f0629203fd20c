"""
Replay all policies over all records of spot markets.

Without options: print the tables. A record of your own is a CSV: see benchmarks/traces/SOURCE.md.
"""

import argparse
import json
import os
import resource
import time
from pathlib import Path

from benchmarks.policies import comparisons, report
from benchmarks.policies.due import Contract, due_table, fulfil
from benchmarks.policies.market import Stress
from benchmarks.policies.replay import POLICIES, SEEDS, ComparisonResult, PolicyComparison, play
from benchmarks.policies.table import in_full, under_stress
from benchmarks.policies.trace import Trace, read_csv, read_lifetimes


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--full", action="store_true", help="play every record from begin to end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and docs/policies.svg"
    )
    own = parser.add_argument_group("a record of your own")
    own.add_argument("--trace", type=Path, metavar="FILE", help="replay this CSV")
    own.add_argument("--fill", action="store_true", help="a row that is missing is like the one before it")
    own.add_argument("--gang", type=int, default=1, metavar="N", help="columns count machines; N are needed")
    own.add_argument(
        "--on-demand", type=float, default=3.06, metavar="USD", help="price of an hour on demand"
    )
    own.add_argument("--hours", type=float, metavar="H", help="play at most so much of each part")
    own.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="parts, each played alone")
    own.add_argument(
        "--policy",
        action="append",
        choices=[policy.name for policy in POLICIES],
        metavar="NAME",
        help="only this policy; may be repeated",
    )
    own.add_argument(
        "--stress", action="store_true", help="grant a quarter of the requests, and let machines live briefly"
    )
    own.add_argument(
        "--lifetimes", type=Path, metavar="FILE", help="a lifetime in seconds a line, for --stress"
    )
    own.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="HOURS:STRETCH",
        help="a job of so many hours that may take so many times as long; may be repeated",
    )
    own.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main() -> None:
    """Run the benchmark, print its tables, and with --write put them into docs/performance.md."""
    parser = options()
    words = parser.parse_args()
    if words.trace:
        try:
            own_record(words)
        except (ValueError, OSError) as error:
            parser.error(str(error))
        return
    began = time.monotonic()
    run = report.measure(None if words.full else comparisons.HOURS, words.jobs)
    print(report.text(run))
    print(f"\nWall time: {time.monotonic() - began:.0f} s with {words.jobs} processes")
    if words.write:
        report.write(run, time.monotonic() - began, computing(), words.jobs)


def own_record(words: argparse.Namespace) -> None:
    """Replay a user's record: every policy and, where asked for, jobs with a deadline."""
    trace = read_csv(words.trace, gang=words.gang, on_demand=words.on_demand, fill=words.fill)
    every = [a_contract(text, trace.name, trace) for text in words.deadline]
    comparison = PolicyComparison(
        trace.name,
        trace,
        tuple(words.policy or comparisons.ALL),
        words.hours,
        stress=Stress() if words.stress else None,
        seeds=words.seeds,
        lived=read_lifetimes(words.lifetimes) if words.lifetimes else (),
    )
    (result,) = play([comparison], words.jobs)
    found = [fulfil(contract, words.jobs) for contract in every]
    if words.json:
        rows = {name: row(result, name) for name in result.by_policy}
        due = {
            c.title: [{n: vars(d) for n, d in one.items()} for one in f]
            for c, f in zip(every, found, strict=True)
        }
        print(json.dumps({"trace": trace.name, "omniscient": result.bound, "policies": rows, "due": due}))
        return
    print((under_stress if words.stress else in_full)(result))
    if found:
        print(f"\n{due_table(every, found)}")


def a_contract(text: str, name: str, trace: Trace) -> Contract:
    """Return the job that HOURS:STRETCH names; raise ValueError when it names none that fits."""
    hours, _, stretch = text.partition(":")
    try:
        contract = Contract(f"{name}, {text}", trace, float(hours), float(stretch))
    except ValueError:
        raise ValueError(f"--deadline {text}: write HOURS:STRETCH, such as 60:1.5") from None
    if contract.work <= 0 or contract.stretch <= 1:
        raise ValueError(f"--deadline {text}: hours must be above 0 and the stretch above 1")
    contract.starts()
    return contract


def row(result: ComparisonResult, name: str) -> dict[str, object]:
    """Return one policy's figures for --json."""
    r = result.by_policy[name]
    delays = {f"delay_p{share:.0%}".rstrip("%"): r.delay(share) for share in (0.5, 0.9, 0.99)}
    known = {key: value for key, value in delays.items() if r.recoveries}
    return {
        "kept": result.useful(name),
        "kept_of_omniscient": result.reached(name),
        "parts": result.between(name),
        "usd_per_kept_hour": r.usd_hour if r.useful else None,
        "creates": r.creates,
        "machines_used": r.used,
        "wait_of_shortest": r.waited / r.soonest if r.soonest else None,
        **known,
    }


def computing() -> float:
    """Return the seconds of computing so far, here and in all processes that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
