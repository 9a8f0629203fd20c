"""
What `tpuctl up` does to bring code to machines: the bundle is built when the folder has changed, and sent.

As a program: python -m benchmarks.push.ours SOURCE BUNDLES KEY HOST...
"""

import gc
import json
import sys
from collections.abc import Sequence
from getpass import getuser
from pathlib import Path

from orchestrator.app.source.bundle import build
from orchestrator.cli.main import ALLOCATIONS
from orchestrator.domain.remote import Host
from orchestrator.ssh.remote import Ssh, SshSettings


def push(source: Path, bundles: Path, key: Path, hosts: Sequence[Host]) -> int:
    """Bring *source* to every host and return the bytes that were sent."""
    bundle = build(source, bundles)
    results = Ssh(SshSettings(getuser(), key)).push(hosts, bundle.path, bundle.digest)
    failed = [result.error for result in results if result.error]
    if failed:
        raise RuntimeError(failed[0])
    return sum(result.sent_bytes for result in results)


if __name__ == "__main__":
    gc.set_threshold(ALLOCATIONS)  # as each command does
    source, bundles, key, *hosts = sys.argv[1:]
    found = [Host(h["name"], h["address"], tuple(h["host_keys"]), h["port"]) for h in map(json.loads, hosts)]
    push(Path(source), Path(bundles), Path(key), found)
    gc.freeze()
