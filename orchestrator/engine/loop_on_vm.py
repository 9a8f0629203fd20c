"""
The loop on the VM: what is packed for it, and how it is put there, started, stopped and looked at.

Everything goes in one tar, named by its sha256, into a folder of that name; `current` is switched by a
rename. So the machine has the old loop or the new one, never a mix.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.ports import Host, Remote
from orchestrator.domain.scopes import CLOUD_PLATFORM
from orchestrator.errors import RemoteError, UsageError

FOLDER = "controller"
INSTALL_SECONDS = 240.0
"""Seconds for the machine to unpack the loop; two minutes of it may be the end of its boot."""
CALL_SECONDS = 60.0
NO_SCOPE = 77
"""Status of the install script on a machine whose account may not do what the loop does."""

_INSTALL = r"""
set -euo pipefail
umask 077
root=$1 base=$1/@FOLDER@ digest=@DIGEST@ scope=@SCOPE@
scopes=$(python3 -E - <<'END'
import json, os, urllib.request
url = "http://%s/computeMetadata/v1/instance/service-accounts/default/?recursive=true"
url %= os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
print(*json.load(direct.open(request, timeout=20))["scopes"], sep="\n")
END
)
if ! grep -qxF "$scope" <<<"$scopes"; then
  rm -f "$base/$digest.tar"
  exit @NO_SCOPE@
fi
for ((tries = 0; tries < 600; tries++)); do
  [ ! -s "$root/machine.env" ] || break
  sleep 0.2
done
if [ ! -d "$base/$digest" ]; then
  rm -rf "$base/.fresh"
  mkdir "$base/.fresh"
  tar -xf "$base/$digest.tar" -C "$base/.fresh" --no-same-owner
  sync -f "$base/.fresh"
  mv -T "$base/.fresh" "$base/$digest"
fi
rm -f "$base"/*.tar
if [ -x "$base/current/run-watch" ]; then
  "$base/current/run-watch" stop
fi
ln -sfn "$digest" "$base/.current"
mv -fT "$base/.current" "$base/current"
for old in "$base"/*/; do
  name=$(basename "$old")
  if [ "${#name}" = 64 ] && [ "$name" != "$digest" ]; then
    rm -rf "$old"
  fi
done
"""
_CALL = r"""
script=$1/@FOLDER@/current/run-watch
if [ ! -x "$script" ]; then
  echo '{"digest": "", "running": false, "state": ""}'
  exit 0
fi
exec "$script" @VERB@
"""


@dataclass(frozen=True)
class Packed:
    """Hold the tar of one loop and its sha256 in hex."""

    data: bytes
    digest: str


@dataclass(frozen=True)
class LoopState:
    """Say which loop a machine has (empty: none), whether it runs, and what it said of itself last."""

    digest: str
    running: bool
    state: str

    @property
    def failed(self) -> bool:
        """Say whether it could not be started."""
        return self.state.startswith("failed")


def pack(files: Mapping[str, tuple[bytes, int]]) -> Packed:
    """Return *files* (name to content and mode) as a tar that is the same for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            # Neither owner nor time: the same files must give the same digest on every computer.
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return Packed(data, hashlib.sha256(data).hexdigest())


def install(remote: Remote, host: Host, packed: Packed) -> None:
    """
    Put the loop on the machine, end the one before, and start nothing.

    Raise UsageError when the machine was made without the scope that the loop needs, RemoteError otherwise.
    """
    remote.put([host], packed.data, f"{FOLDER}/{packed.digest}.tar", 0o600)
    script = _filled(_INSTALL, DIGEST=packed.digest, SCOPE=CLOUD_PLATFORM, NO_SCOPE=str(NO_SCOPE))
    (done,) = remote.run_elevated([host], script, INSTALL_SECONDS)
    if done.exit_code == NO_SCOPE:
        raise UsageError(
            f"{host.name} was made without the scope cloud-platform, so a loop there could not act",
            hint="recreate it: tpuctl down, then tpuctl up (checkpoints stay in the bucket)",
            changed="nothing was changed",
            code="TPU-136",
        )
    if done.exit_code:
        raise RemoteError(f"{host.name}: the loop could not be put there: {_reason(done.stderr)}")


def start(remote: Remote, host: Host) -> None:
    """Start the loop; one that runs goes on. Raise RemoteError."""
    _call(remote, host, "start")


def stop(remote: Remote, host: Host) -> None:
    """End the loop and keep cron from starting it; a machine without one is fine. Raise RemoteError."""
    _call(remote, host, "stop")


def look(remote: Remote, host: Host) -> LoopState:
    """Return what the machine says of its loop. Raise RemoteError."""
    said = _call(remote, host, "state")
    try:
        # The last line: profiles and messages of the day may print before it.
        body = json.loads(said.splitlines()[-1])
        return LoopState(str(body["digest"]), bool(body["running"]), str(body["state"]))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise RemoteError(f"{host.name}: the state of the loop cannot be read: {said[-300:]!r}") from error


def _call(remote: Remote, host: Host, verb: str) -> str:
    (done,) = remote.run_elevated([host], _filled(_CALL, VERB=verb), CALL_SECONDS)
    if done.exit_code:
        raise RemoteError(f"{host.name}: run-watch {verb}: {_reason(done.stderr)}")
    return done.stdout


def _filled(script: str, **values: str) -> str:
    """Fill in constants and digests; none of them comes from outside."""
    for name, value in {"FOLDER": FOLDER, **values}.items():
        script = script.replace(f"@{name}@", value)
    return script


def _reason(stderr: str) -> str:
    return stderr.strip()[-600:] or "it gave no reason"
