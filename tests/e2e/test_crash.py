"""Deaths of the job and of the agent, new code, broken code: one job at a time, and a clear end."""

import base64
import json
import os
import re
import threading
import urllib.request

import pytest

from tests.e2e.process_lab import _read, kill

pytestmark = pytest.mark.e2e


class Census:
    """Count the job's processes again and again: two at once would write over each other."""

    def __init__(self, lab) -> None:
        self.most = 0
        self._lab = lab
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count)

    def _count(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, len(self._lab.jobs()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def swap_host_key(lab, machine: str, text: str) -> str:
    """Publish another host key for a machine, as if another one had its address; return the one before."""
    options = json.loads((lab.cloud / "options.json").read_text())
    address = next(m["address"] for m in lab.machines() if f"-{machine}-" in m["id"])
    base = f"http://{address}:{options['metadata_port']}/computeMetadata/v1/instance/guest-attributes"
    where, headers = f"{base}/hostkeys/ssh-ed25519", {"Metadata-Flavor": "Google"}
    with urllib.request.urlopen(urllib.request.Request(where, headers=headers), timeout=60) as answer:
        before = answer.read().decode()
    put = urllib.request.Request(where, text.encode(), headers, method="PUT")
    urllib.request.urlopen(put, timeout=60).close()
    return before


def test_deaths_of_job_and_agent_new_code_and_broken_code(lab):
    """
    The agent restarts a killed job, cron a killed agent, which ends the orphan first.

    Code that fails at once is given up with its reason.
    """
    lab.use_example(failures=2)
    lab.tpuctl("up")
    lab.wait_for("step 6", lambda: lab.at(6))
    with Census(lab) as census:
        (job,) = lab.jobs()
        kill(job)
        lab.wait_for("attempt 2", lambda: lab.at(6, attempt=2))
        # A segment of the log that is not in the bucket yet goes with the agent.
        lab.wait_for("its first lines", lambda: "attempt 2: resume" in lab.logs(1))
        (job,) = lab.jobs()
        (agent,) = lab.agents()
        kill(agent)
        assert b"slowed.py" in _read(job, "cmdline"), "it is an orphan now"
        lab.wait_for("attempt 3", lambda: lab.at(6, attempt=3))
        assert job not in lab.jobs()
    assert census.most == 1
    assert re.search(r"attempt 2: resume from step \d+ ", lab.logs(1))
    lab.wait_for("the reason", lambda: "the job was ended by SIGKILL" in lab.logs(1))

    hello = lab.tpuctl("ssh", "--", "echo", "hello  there")
    assert hello.out.strip() == "hello  there"
    key = b"\0\0\0\x0bssh-ed25519\0\0\0 " + os.urandom(32)
    published = swap_host_key(lab, "e2e-tpu-g1", base64.b64encode(key).decode())
    assert "TPU-510" in lab.tpuctl("ssh", "--", "true", expect=1).err

    swap_host_key(lab, "e2e-tpu-g1", published)
    (lab.work / "slowed.py").write_text(
        "print('second edition', flush=True)\n" + (lab.work / "slowed.py").read_text()
    )
    assert "kB sent" in lab.tpuctl("up").err
    lab.wait_for("the new code", lambda: "second edition" in lab.logs(1))
    (heartbeat,) = lab.wait_for("attempt 4", lambda: lab.at(6, attempt=4))
    assert heartbeat["resumed_from"] >= 5

    (lab.work / "slowed.py").write_text("raise SystemExit(3)\n")
    lab.tpuctl("up", expect=None)
    watch = lab.tpuctl("watch", expect=1)
    assert "the job exited with status 3" in watch.err
    assert lab.machines() == []
    assert [n for n in lab.objects("checkpoints/") if n.endswith(".manifest.json")]
