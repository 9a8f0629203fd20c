"""What the agent finds and does on its machine: processes, environments, packages, notices, secrets."""
