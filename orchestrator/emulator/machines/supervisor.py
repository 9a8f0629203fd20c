"""
Run as the init of a `process` machine: adopt and reap orphans, forward the power button.

Started as `python -m orchestrator.emulator.machines.supervisor CONFIG`. As a child subreaper it stays the
ancestor of all the machine's processes, also of those that call setsid or clear their environment.
"""

import ctypes
import os
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant. Raise OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def main() -> None:
    """Run the guest as a child and return its status when it ends."""
    adopt_orphans()
    # A process without threads that only reaps, so that it survives whatever the guest does.
    guest = os.fork()
    if not guest:
        # After the fork: the supervisor lives as long as its machine and does without the guest's 20 MB.
        from orchestrator.emulator.machines import guest as agent

        agent.main()
        sys.exit(0)
    # To the guest only, which runs the shutdown script before the machine's other processes end.
    signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(guest, number))
    while True:
        pid, status = os.wait()
        if pid == guest:
            sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
