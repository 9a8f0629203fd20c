# Stop the agent for good, after the job has saved; wait $2 seconds for it. The folder is renamed, not deleted, so
# that another deployment does not take its checkpoints for its own.
set -u
root=$1 seconds=$2
cron=${TPUCTL_CRON_DIR:-/etc/cron.d}
[ ! -x "$root/controller/current/run-watch" ] || "$root/controller/current/run-watch" stop
rm -f "$cron/tpuctl" "$cron"/tpuctl-* "${TPUCTL_APT_DIR:-/etc/apt/apt.conf.d}/90tpuctl"
for place in "$root"/sidecars/*/; do
  for file in $(grep -lzxsF -- "TPUCTL_SIDECAR=$(basename "$place"):$root" /proc/[0-9]*/environ || true); do
    pid=${file#/proc/}
    kill "${pid%/environ}" 2>/dev/null || true
  done
done
[ -d "$root" ] || exit 0
if [ -s "$root/agent.pyz" ] && [ -s "$root/job.env" ]; then
  touch "$root/state/stop"
  set -a
  . "$root/job.env"
  timeout -k 2 30 python3 -E "$root/agent.pyz" stop || exit
  # The lock is free when agent and job are gone.
  flock -w "$seconds" -E 75 "$root/job.lock" true || { echo "the agent has not left in $seconds s" >&2; exit 75; }
fi
mv "$root" "$root.given-back-$(date +%s)"
