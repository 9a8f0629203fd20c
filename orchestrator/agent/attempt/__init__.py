"""One start of the job, from its code and checkpoint to its last commit."""
