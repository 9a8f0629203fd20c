"""
Turn a training script into a finished model on preemptible Cloud TPUs.

Imports go downwards only (kept by import-linter, see `pyproject.toml`): cli -> app -> engine | google | ssh |
emulator | report -> advice -> scripts -> config -> planning -> pricing -> domain -> contract. The engine
knows clouds and machines through the Protocols of `domain`, so it imports no adapter. `emulator` is the local
cloud. `agent` is shipped to the machines, with `contract` and nothing else of ours.
"""

__version__ = "0.1.0"
