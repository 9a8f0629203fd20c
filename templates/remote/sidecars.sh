# Call run-sidecars with the words $2, $3, ...; what came over SSH is newer than what the machine was made with.
script=$1/run-sidecars
[ ! -s "$script.local" ] || script=$script.local
exec "$script" "${@:2}"
