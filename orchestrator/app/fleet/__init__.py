"""Run a fleet: a VM with Slurm's controller, and TPUs as its nodes, each kept alive like any deployment."""
