"""
Define the values that all packages share: the spec, the observation, the record, the plan. Pure.

This package decides nothing and does no I/O. `ports` defines what the engine needs of clouds and machines.
"""
