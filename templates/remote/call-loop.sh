# Start, stop or inspect the loop on this machine: $2 is the verb of run-watch.
script=$1/controller/current/run-watch
if [ ! -x "$script" ]; then
  echo '{"digest": "", "running": false, "state": ""}'
  exit 0
fi
exec "$script" "$2"
