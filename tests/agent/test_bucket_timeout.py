"""A task of a fleet on a machine that cannot reach the bucket: it ends before the task may run elsewhere."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from orchestrator.agent.attempt.run_attempt import STALL_GRACE
from orchestrator.agent.fleet.task import AGAIN, BUCKET_TIMEOUT
from orchestrator.scripts.shipped import shipped
from tests.agent.agent_lab import AgentLab
from tests.agent.test_task import claims, committed, node, start


@contextmanager
def cable(lab: AgentLab) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Give a way to the bucket of its own, with functions that cut it, open connections too, and mend it."""
    target = (lab.url.partition("//")[2].partition(":")[0], int(lab.url.rpartition(":")[2]))
    ends: list[socket.socket] = []
    cut = threading.Event()

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                one = server.accept()[0]
                if cut.is_set():
                    one.close()
                    continue
                other = socket.create_connection(target)
                ends.extend((one, other))
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    def cut_off() -> None:
        cut.set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    lab.proxies.add(f"127.0.0.1:{server.getsockname()[1]}")
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", cut_off, cut.clear
    finally:
        server.close()


ENDLESS = {"TARGET_STEPS": 100000, "_STEPS": 100000, "_STEP_SECONDS": 0.02, "BUCKET_TIMEOUT_SECONDS": 4}


def test_a_machine_that_is_cut_off_from_the_bucket_ends_its_task_in_the_time_of_its_lease(
    lab: AgentLab,
) -> None:
    """It asks to be queued again, and another machine goes on from what was committed."""
    with cable(lab) as (url, cut_off, mend):
        late = node(lab, "a", **ENDLESS)
        late.env["STORAGE_EMULATOR_HOST"] = url
        start(late).until(lambda: committed(lab), "something committed")
        cut_off()
        assert late.job_processes()
        late.until(lambda: not late.job_processes(), "the end of its job")
        # Its job is over: without the bucket it would try the last commit and reports for a minute and a half.
        mend()
        assert late.wait() == AGAIN
    assert "out of reach" in late.agent_log()


def test_a_cut_that_is_shorter_than_the_lease_does_no_harm(lab: AgentLab) -> None:
    """The same start goes on, and commits again."""
    with cable(lab) as (url, cut_off, mend):
        machine = node(lab, "a", **{**ENDLESS, "BUCKET_TIMEOUT_SECONDS": 60})
        machine.env["STORAGE_EMULATOR_HOST"] = url
        start(machine).until(lambda: committed(lab), "something committed")
        cut_off()
        # The reports give up first.
        machine.until(lambda: " heartbeat: " in machine.agent_log(), "a call that failed")
        mend()
        machine.until(lambda: "heartbeat: works again" in machine.agent_log(), "the bucket again")
        before = committed(lab)
        machine.until(lambda: committed(lab) != before, "another commit")
        assert (machine.job_processes() != [], len(claims(lab))) == (True, 1)


def test_slurm_gives_a_silent_machine_up_only_when_its_task_has_ended() -> None:
    """The lease, and the time to end a job, are shorter than Slurm's timeout."""
    timeout = re.search(r"^SlurmdTimeout=(\d+)$", shipped("slurm.sh").decode(), re.MULTILINE)
    assert timeout is not None
    assert float(timeout[1]) > 2 * (BUCKET_TIMEOUT + STALL_GRACE)
