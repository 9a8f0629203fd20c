"""
Implement the command line: parse, connect the parts, make one call, show the result.

Nothing heavy is imported before a command needs it.
"""
