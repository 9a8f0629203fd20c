"""
Seconds between a preemption notice and the end of the machine, and who may use how many of them.

One after the other: the job saves (`job.grace`), the agent commits what was saved, then it brings what no
commit contains. Each has a bound of its own and not a share, because the job mostly ends early, and a machine
may get more time than was promised.
"""

NOTICE = 30.0
"""From the notice to the power-off, at best (docs/facts.md 2.3)."""
SHUTDOWN_SCRIPT = 23.0
"""For which the shutdown script waits for the agent. It is killed 2 s later: services after it need some, too."""
JOB_SAVES = 20.0
"""Default of `job.grace`: from the stop signal to SIGKILL."""
TRAINER_SAVES = 25.0
"""The same for the Trainer, which waits 3 s before it begins to save."""
LAST_COMMIT = 25.0
"""For the commit of what the job has saved."""
RESCUE = 22.0
"""Counted from the notice, for files that no commit contains; the last heartbeat still needs a second."""
SUCCESSOR_WAITS = 120.0
"""For the last save of the TPU before it, at most: our choice, longer than any notice that was seen."""
AT_REST = ("stopped", "done", "unclaimed", "failed")
"""Phases of a report in which a machine has committed what it had."""
REPORT_COUNTS = 15.0
"""For which the last report of a machine that saves shows that it is still there: our choice."""
