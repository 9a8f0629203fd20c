"""Reach the machines of a deployment: commands, files, ports, and OpenSSH."""
