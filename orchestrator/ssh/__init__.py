"""SSH to the machines: pinned host keys, atomic push, run, tail. Every step has a limit in time."""
