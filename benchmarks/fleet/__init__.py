"""A fleet of machines that are lost and come back, with the real Slurm in front of it."""
