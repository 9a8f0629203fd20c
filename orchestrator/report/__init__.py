"""Report what a run has cost and what its time was used for."""
