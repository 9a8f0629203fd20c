"""Files and folders to and from a machine, whole or not at all."""
