# Start the job on a machine that has its code; with --restart as $2 stop a running one first.
# The startup script may still be at work: it makes start-job and job.env early.
set -u
root=$1
for ((tries = 0; tries < 600; tries++)); do
  if [ -x "$root/start-job" ] && [ -s "$root/job.env" ]; then
    break
  fi
  sleep 0.2
done
if [ ! -x "$root/start-job" ] || [ ! -s "$root/job.env" ]; then
  last=$(tail -n 1 "$root/log/startup.log" 2>/dev/null)
  echo "the startup script has not prepared this machine within 120 s; $root/log/startup.log there ends with: ${last:-nothing}" >&2
  exit 75
fi
exec "$root/start-job" "${@:2}"
