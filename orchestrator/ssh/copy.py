"""Copy one file to or from a machine: all of it under its name, or nothing."""

import hashlib
import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.replacing import replacing
from orchestrator.errors import RemoteError
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import errors_of, exit_code, read, run_on
from orchestrator.ssh.upload import map_file

if TYPE_CHECKING:
    from orchestrator.ssh.connection import Connection

MISSING, THERE = 4, 5
"""Exit status of our scripts: what was to be read is missing; what was to be made is there already."""
NEW_FOLDER = (
    "name a folder that is not there yet; to bring one up to date: tpuctl ssh-config --write, then rsync"
)
_HINTS = {
    MISSING: "see what is there: tpuctl exec -- ls",
    THERE: NEW_FOLDER,
}
PLACE = r"""
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
"""
_TAKE = rf"""{PLACE}
target=$2 digest=$3 name=$4
case $target in */) mkdir -p "$target" ;; esac
[ ! -d "$target" ] || target=${{target%/}}/$name
part=$target.tpuctl-part.$$
trap 'rm -f "$part"' EXIT
sum=$(tee --output-error=exit "$part" | sha256sum)
[ "${{sum%% *}}" = "$digest" ] || {{ echo "what arrived is not what was sent" >&2; exit 1; }}
mv -fT "$part" "$target"
"""
_GIVE = rf"""{PLACE}
[ -e "$2" ] || {{ echo "there is no $2 in $PWD" >&2; exit {MISSING}; }}
[ -f "$2" ] || {{ echo "$2 is no plain file; for a folder: tpuctl cp -r" >&2; exit 1; }}
sum=$(sha256sum <"$2")
echo "${{sum%% *}}"
cat -- "$2"
"""
"""
Print the sha256, then the content; the caller refuses a file that changed in between.

A relative path is relative to the job's folder.
"""
_DIGEST = hashlib.sha256().digest_size * 2


def send(connection: "Connection", source: Path, target: str, root: str) -> None:
    """
    Copy file *source* to *target* on the machine, atomically; a folder as target gets it under its name.

    Raise RemoteError and OSError.
    """
    digest = sha256_of(source)
    # An empty file cannot be mapped.
    data = map_file(source) if source.stat().st_size else b""
    try:
        command = elevated("tpuctl-cp", _TAKE, root, target, digest, source.name)
        with connection:
            done = run_on(connection, command, data)
    finally:
        if isinstance(data, mmap.mmap):
            data.close()
    if done.exit_code:
        raise failed(connection, done.stderr.strip(), f"{target} on it", done.exit_code)


def fetch(connection: "Connection", source: str, target: Path, root: str) -> None:
    """Copy file *source* of the machine to *target*, atomically. Raise RemoteError and OSError."""
    with connection, replacing(target, 0o644) as file:
        channel = connection.execute(elevated("tpuctl-cp", _GIVE, root, source))
        head, found = b"", hashlib.sha256()
        for data in read(connection, channel):
            missing = _DIGEST + 1 - len(head)
            head += data[:missing]
            found.update(data[missing:])
            file.write(data[missing:])
        said = errors_of(channel)
        if code := exit_code(connection, channel):
            raise failed(connection, said, str(target), code)
        if head.decode(errors="replace") != f"{found.hexdigest()}\n":
            raise failed(connection, f"{source} changed while it was copied", str(target))


def failed(connection: "Connection", why: str, target: str, code: int = 0) -> RemoteError:
    """Return the error for a copy that failed and left *target* as it was; *code* is our script's exit status."""
    return RemoteError(
        f"copying with {connection.host.name}: {why}", hint=_HINTS.get(code, ""),
        changed=f"nothing was copied; what there is of {target} is as it was",
    )  # fmt: skip
