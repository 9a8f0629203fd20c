"""Convert deployment files of other tools, which are read as text and never run."""
