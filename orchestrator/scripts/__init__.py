"""What machines run, made from templates and sources: scripts, the agent's archive, the wheel of the loop."""
