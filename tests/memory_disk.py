"""
Where worlds of tests keep their files: in memory, where a small file takes a tenth of the time.
"""

import os

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder for `tempfile`; None is its own choice."""
