"""
When to save: after so many steps, or after the time that tpuctl tells (`job.checkpoint.every`).
"""

import os
import time
from pathlib import Path


class Saving:
    """
    Know when the next save is due, and for how long the last one stopped the training.
    """

    def __init__(self, steps):
        self.steps = steps
        self.seconds = None
        self._told = os.environ.get("TPUCTL_SAVE_EVERY_FILE")
        self._every = float(os.environ.get("TPUCTL_SAVE_EVERY_SECONDS") or "inf")
        self._saved = self._read = time.monotonic()

    def due(self, step):
        """
        Say whether to save now. In a gang one worker's yes is everybody's: clocks differ, steps do not.
        """
        now = time.monotonic()
        if not self._told:
            return step % self.steps == 0
        if now - self._read >= 1.0:
            self._read = now
            self._every = self._look()
        return now - self._saved >= self._every

    def done(self, began):
        """
        Note a save that began at that time of time.monotonic().
        """
        self._saved = time.monotonic()
        self.seconds = self._saved - began

    def _look(self):
        """
        Return what the file says by now; it is replaced as a whole while we run.
        """
        try:
            return float(Path(self._told).read_text())
        except (OSError, ValueError):
            return self._every
