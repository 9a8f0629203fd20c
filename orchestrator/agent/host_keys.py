"""The machine's public host keys, for its report: where guest attributes are closed, nothing else tells them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Mapping

FOLDER = "/etc/ssh"
LONGEST = 1000
"""Most characters of one key: an RSA key of 4096 bits has 716."""


def public_host_keys(environ: Mapping[str, str] = os.environ) -> List[str]:
    """Return lines such as `ssh-ed25519 AAAA...`, sorted; none where they cannot be read."""
    folder = Path(environ.get("TPUCTL_SSH_DIR") or FOLDER)
    found = []
    for path in folder.glob("ssh_host_*_key.pub"):
        try:
            words = path.read_text().split()[:2]
        except (OSError, ValueError):
            continue
        if len(words) == 2 and len(" ".join(words)) <= LONGEST:
            found.append(" ".join(words))
    return sorted(found)
