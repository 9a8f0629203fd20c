"""
tpuctl: turn a training script into a finished model on preemptible Cloud TPUs.

Imports go downwards only (kept by import-linter, see `pyproject.toml`):
cli -> engine | cloud | remote | local | report -> config | render -> ports | clock -> core -> errors.
`agent` is shipped to the machines and imports nothing of ours outside itself.
"""

__version__ = "0.1.0"
