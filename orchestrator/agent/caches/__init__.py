"""What a machine has installed, compiled or downloaded, kept for the next one."""
