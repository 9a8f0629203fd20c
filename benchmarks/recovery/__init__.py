"""From the SIGKILL of a machine to the next training step: ours, and two other designs, on one local cloud."""
