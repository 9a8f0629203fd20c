# Run slurm.sh with the words $2, $3, ... on a VM that may still boot.
for ((tries = 0; tries < 600; tries++)); do
  [ ! -s "$1/machine.env" ] || [ ! -s "$1/agent.pyz" ] || break
  sleep 0.2
done
set -a
. "$1/machine.env"
set +a
exec bash "$1/slurm/slurm.sh" "${@:2}"
