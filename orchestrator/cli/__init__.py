"""The command line: parse, wire, one call, show. Nothing heavy is imported before a command needs it."""
