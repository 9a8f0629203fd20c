"""Build what machines run from templates and sources: scripts, the agent's archive, the wheel of the loop."""
