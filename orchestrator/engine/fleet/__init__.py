"""Keep a fleet's jobs in its bucket, read back what they did, and drive its Slurm."""
