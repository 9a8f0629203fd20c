"""
Values that everything else speaks of: the spec, what was observed, the record, the plan. Pure.

Nothing here decides, waits, reads or writes. `ports` says what the engine needs of clouds and machines.
"""
