"""
Divide the seconds between a preemption notice and the end of the machine.

One after the other: the job saves (`job.grace`), the agent commits what was saved, then it uploads files that
no commit contains. Each has a bound of its own and not a share, because the job usually ends early, and a
machine may get more time than promised.
"""

NOTICE = 30.0
"""From the notice to the power-off, at most (docs/facts.md 2.3)."""
SHUTDOWN_SCRIPT = 23.0
"""The shutdown script's wait for the agent. It is killed 2 s later, because services after it need time too."""
JOB_SAVES = 20.0
"""Default of `job.grace`: from the stop signal to SIGKILL."""
TRAINER_SAVES = 25.0
"""The same for the Trainer, which waits 3 s before it starts to save."""
LAST_COMMIT = 25.0
"""For the commit of what the job has saved."""
RESCUE = 22.0
"""From the notice, for files that no commit contains; the last heartbeat needs one more second."""
SUCCESSOR_TIMEOUT = 120.0
"""Longest wait for the last save of the TPU before: our choice, longer than any observed notice."""
REPORT_COUNTS = 15.0
"""Age up to which the report of a saving machine proves that it still exists: our choice."""
