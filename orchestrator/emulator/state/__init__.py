"""
Model the local cloud as state machines.

Pure: time comes from a Clock, randomness from a seed, machines are requested through a Protocol.
"""
