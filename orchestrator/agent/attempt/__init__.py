"""Run one start of the job, from its code and checkpoint to the last commit."""
