"""A fleet: a VM with Slurm's controller, and TPUs that are its nodes, each kept alive as any deployment is."""
