"""How long a push of code takes, beside the tools that one would use by hand."""
