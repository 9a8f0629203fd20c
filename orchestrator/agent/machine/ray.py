"""Install `tpuctl-ray`: run the job's command with a Ray cluster over all workers of the attempt."""

from __future__ import annotations

from orchestrator.agent.layout import Layout, install_script

COMMAND = "tpuctl-ray"
SCRIPT = """\
#!/bin/sh
# Run a command on worker 0 with a Ray cluster over all workers of the job. Made by tpuctl.
set -eu
if [ $# = 0 ]; then
  echo "usage: tpuctl-ray COMMAND [ARGUMENT...]" >&2
  exit 2
fi
if ! command -v ray >/dev/null; then
  echo "tpuctl-ray: there is no program 'ray' here; add it to requirements.txt, and write" >&2
  echo "  command: exec tpuctl-venv -r requirements.txt -- tpuctl-ray python train.py" >&2
  exit 2
fi
first=127.0.0.1
if [ "${TPUCTL_WORKERS:-1}" -gt 1 ]; then
  first=${MEGASCALE_COORDINATOR_ADDRESS:-${TPUCTL_WORKER_HOSTS%%,*}}
fi
# Ray names a slice after it, and it is `local` on each of them. Without it Ray asks the metadata server.
unset TPU_NAME
# Ray gives up after 30 s; another worker may still be installing.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT="${RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT:-1800}"
exec ray symmetric-run --address "$first:6379" --min-nodes "${TPUCTL_WORKERS:-1}" -- "$@"
"""


def install_command(layout: Layout) -> None:
    """Write `tpuctl-ray` to the machine's folder of programs. Raise OSError."""
    install_script(layout.programs / COMMAND, SCRIPT)
