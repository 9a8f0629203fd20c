"""
State machines of the local cloud.

Pure: time comes from a Clock, randomness from a seed, machines are asked for through a Protocol.
"""
