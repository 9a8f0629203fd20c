"""Put one small file on a machine: temporary name, checksum, rename."""

import hashlib

from orchestrator.errors import RemoteError
from orchestrator.ssh.connection import Connection
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import run_on

_SCRIPT = r"""
set -euo pipefail
target=$1/$2 digest=$3 mode=$4
temporary=$target.tmp.$$
trap 'rm -f "$temporary"' EXIT
mkdir -p "$(dirname "$target")"
sum=$(umask 077; tee --output-error=exit "$temporary" | sha256sum)
[ "${sum%% *}" = "$digest" ] || { echo "the file that arrived is not the one sent" >&2; exit 1; }
chmod "$mode" "$temporary"
mv -fT "$temporary" "$target"
"""


def put_one(connection: Connection, data: bytes, root: str, target: str, mode: int) -> None:
    """Put *data* at *target* (a path below the machine folder *root*) with *mode*. Raise RemoteError."""
    digest = hashlib.sha256(data).hexdigest()
    command = elevated("tpuctl-put", _SCRIPT, root, target, digest, f"{mode:04o}")
    with connection:
        result = run_on(connection, command, data)
    if result.exit_code:
        raise RemoteError(
            f"{target} on {connection.host.name} could not be written: {result.stderr.strip()[-600:]}",
            changed="The file that was there is unchanged.",
        )
