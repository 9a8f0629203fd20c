"""One module for each command: options, one piece of work, what is shown."""
