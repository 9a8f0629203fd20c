"""A fleet's afternoon for tests of its page: nodes that come and go, jobs that wait, results of a sweep."""

import json
import random

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.fleet.fleet_cost import Amount, FleetUsage, fleet_cost, jobs_remaining, running
from orchestrator.planning.fleet.tasks import Submission, TaskState
from orchestrator.planning.fleet.use import FleetNodeFacts, JobHistory, TaskEnd, TaskStart, lanes
from orchestrator.report.results_table import results_table

T = 1_800_000_000.0


class Afternoon:
    """Play *nodes* nodes that work on some jobs for *hours*; machines are lost as chance wants it."""

    def __init__(self, nodes=100, hours=4.0, seed=1):
        self.now, self._chance = T + hours * 3600, random.Random(seed)
        rates = [{"lr": lr, "seed": str(s)} for lr in ("1e-4", "3e-4", "1e-3", "3e-3") for s in range(40)]
        widths = [{"width": str(w), "act": act} for w in (64, 128, 256, 512) for act in ("relu", "gelu")] * 18
        self.submissions = [
            self._order("lr-sweep", 0, rates), self._order("tokenize", 900, [{}] * 120),
            self._order("width", 4000, widths),
        ]  # fmt: skip
        self.names = [f"grant-{n:03d}" for n in range(1, nodes + 1)]
        self.starts, self.ends, self.files, self.spans = {}, {}, {}, {name: [] for name in self.names}
        self._lost = 0
        self._play()

    def _order(self, name, at, parameters):
        return Submission(
            name, tuple(parameters), JobSpec("x", target_steps=1000), "b", "s", T + at, collect=("m.json",)
        )

    def _play(self):
        waiting = [(o.submitted_at, o.name, n) for o in self.submissions for n in range(len(o.parameters))]
        free = sorted(
            (T + 60 * (n // 12) + self._chance.uniform(60, 200), name, T + 60 * (n // 12))
            for n, name in enumerate(self.names)
        )
        while free and waiting:
            at, name, born = free.pop(0)
            ready = [one for one in sorted(waiting) if one[0] <= at]
            if not ready:
                free.append((at + 60, name, born))
                free.sort()
                if at > self.now:
                    break
                continue
            if at >= self.now:
                self.spans[name].append((born, None))
                continue
            _, job, task = ready[0]
            waiting.remove(ready[0])
            at += self._chance.uniform(2, 25)
            lasts, dies = self._chance.uniform(900, 2700), self._chance.expovariate(1 / 9000)
            end, gone = at + lasts, at + dies
            number = len(self.starts.get((job, task), ())) + 1
            if min(end, gone) >= self.now:
                self._begin(job, task, number, name, at, heartbeat(number, self.now - 10, 400))
                self.spans[name].append((born, None))
            elif end <= gone:
                self._begin(job, task, number, name, at, heartbeat(number, end, 1000, phase=Phase.DONE))
                self._end(job, task, end)
                free.append((end, name, born))
            else:
                self._lost += 1
                self._begin(
                    job,
                    task,
                    number,
                    name,
                    at,
                    heartbeat(number, gone, 500, saved=gone - self._chance.uniform(0, 300)),
                )
                self.spans[name].append((born, gone + 30))
                waiting.append((gone + 12, job, task))
                back = gone + self._chance.uniform(40, 900)
                free.append((back + self._chance.uniform(60, 200), name, back))
            free.sort()
        for _, name, born in free:
            if born < self.now and not any(until is None for _, until in self.spans[name]):
                self.spans[name].append((born, None))

    def _begin(self, job, task, number, node, at, last):
        self.starts.setdefault((job, task), []).append(TaskStart(task, number, node, at, last))

    def _end(self, job, task, at):
        self.ends[job, task] = TaskEnd(TaskState.DONE, at)
        submission = next(one for one in self.submissions if one.name == job)
        p = submission.parameters[task]
        loss = (
            2.0
            + abs(float(p.get("lr", 1e-3)) * 1000 - 1)
            + 40 / float(p.get("width", 200))
            + self._chance.uniform(0, 0.2)
        )
        self.files[job, task] = {"m.json": json.dumps({"eval_loss": loss, "accuracy": 1 / loss}).encode()}

    def usage(self, **more):
        """Return what the report gets."""
        jobs = tuple(
            JobHistory(
                submission,
                {n: tuple(one) for (job, n), one in self.starts.items() if job == submission.name},
                {n: one for (job, n), one in self.ends.items() if job == submission.name},
            )
            for submission in self.submissions
        )
        facts = [self._node(name, spans) for name, spans in self.spans.items()]
        found = lanes(facts, jobs, self.now)
        costs, at_work = fleet_cost(found, Amount(self.now - T, 0.12, 0.12)), running(found, self.now)
        eta = jobs_remaining(jobs, costs, at_work, len(facts))
        return FleetUsage(
            "grant",
            self.now,
            jobs,
            found,
            costs,
            at_work,
            eta,
            more.pop("budget", 900.0),
            False,
            preemptions=self._lost,
            **more,
        )

    def _node(self, name, spans):
        found = tuple(Span(Kind.NODE, f"{name}-tpu-g{n}", "z", *span) for n, span in enumerate(spans, 1))
        ready = {span.name: span.since + 90 for span in found if span.since + 90 < self.now}
        return FleetNodeFacts(name, found, ready, lambda _: (1.35, 1.8, 4.5))

    def tables(self, usage):
        """Return the results of all jobs."""
        return [
            results_table(
                job, usage.cost, usage.at_work,
                {n: files for (name, n), files in self.files.items() if name == job.submission.name},
            )
            for job in usage.jobs
            if job.submission.name != "tokenize"
        ]  # fmt: skip


def heartbeat(number, at, step, *, phase=Phase.RUN, saved=None):
    """Return a report of a task at *step*."""
    return Heartbeat(
        number, 0, phase, at, step=step, loss=2.5, rate=0.5, committed_step=step - 5 if saved else step,
        committed_at=saved or at, resumed_from=0 if number == 1 else 480,
    )  # fmt: skip
