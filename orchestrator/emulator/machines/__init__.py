"""Run machines as real processes: kinds process (no privileges) and namespace (root on Linux)."""
