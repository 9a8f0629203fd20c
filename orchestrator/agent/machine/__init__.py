"""Handle the machine itself: processes, environments, packages, notices, secrets."""
