# Run the words $2, $3, ..., or a shell, in the source folder as the job's user.
cd "$1" || exit 1
for file in job.env job.env.local; do
  # Settings that came over SSH are newer than those that the machine was created with.
  if [ -s "$file" ]; then set -a; . "./$file" || exit 1; set +a; fi
done
exec python3 -E "$1/agent.pyz" enter "${@:2}"
