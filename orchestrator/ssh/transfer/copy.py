"""Copy one file to or from a machine: all of it under its name, or nothing."""

import hashlib
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.replacing import replacing
from orchestrator.errors import RemoteError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import errors_of, exit_code, read, run_over
from orchestrator.ssh.transfer.upload import map_file

if TYPE_CHECKING:
    from orchestrator.ssh.connect.connection import Connection

MISSING, THERE, FOLDER = 4, 5, 6
"""Exit status of our scripts: what is to be read is missing, what is to be made is there, a file is a folder."""
NEW_FOLDER = (
    "name a folder that is not there yet; to bring one up to date: tpuctl ssh-config --write, then rsync"
)
Hints = Mapping[int, str]
"""The next step by exit status."""
HINTS: Hints = {MISSING: "see what is there: tpuctl exec -- ls", THERE: NEW_FOLDER}
_DIGEST = hashlib.sha256().digest_size * 2


def send(connection: "Connection", source: Path, target: str, root: str, hints: Hints = HINTS) -> None:
    """
    Copy file *source* to *target* on the machine, atomically; a folder as target gets it under its name.

    Raise RemoteError and OSError.
    """
    digest = sha256_of(source)
    # An empty file cannot be mapped.
    data = map_file(source) if source.stat().st_size else b""
    try:
        command = elevated(remote_script("cp-take-file", target, digest, source.name), root)
        with connection:
            done = run_over(connection, command, data)
    finally:
        if isinstance(data, mmap.mmap):
            data.close()
    if done.exit_code:
        raise failed(connection, done.stderr.strip(), target, hints.get(done.exit_code, ""), to=True)


def fetch(connection: "Connection", source: str, target: Path, root: str, hints: Hints = HINTS) -> None:
    """Copy file *source* of the machine to *target*, atomically. Raise RemoteError and OSError."""
    with connection, replacing(target, 0o644) as file:
        channel = connection.execute(elevated(remote_script("cp-give-file", source), root))
        head, found = b"", hashlib.sha256()
        for data in read(connection, channel):
            missing = _DIGEST + 1 - len(head)
            head += data[:missing]
            found.update(data[missing:])
            file.write(data[missing:])
        said = errors_of(channel)
        if code := exit_code(connection, channel):
            raise failed(connection, said, str(target), hints.get(code, ""))
        if head.decode(errors="replace") != f"{found.hexdigest()}\n":
            raise failed(connection, f"{source} changed while it was copied", str(target))


def failed(
    connection: "Connection", message: str, target: str, hint: str = "", *, to: bool = False
) -> RemoteError:
    """
    Return the error for a copy that failed and left *target* unchanged.

    With *to* the copy was one to the machine, and *target* is there.
    """
    name = connection.host.name
    return RemoteError(
        f"copying {'to' if to else 'from'} {name}: {message}", hint=hint,
        changed=f"nothing was copied; {target}{f' on {name}' if to else ''} is unchanged",
    )  # fmt: skip
