"""
Values and decisions. Pure: no I/O, no clock, no randomness, no logging.
"""
