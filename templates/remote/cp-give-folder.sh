# Print the folder $2 as a tar. Status 4 is MISSING in ssh/transfer/copy.py.
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
[ -d "$2" ] || { echo "there is no folder $2 in $PWD" >&2; exit 4; }
cd -- "$2" || exit 3
exec tar --create --hard-dereference --format=gnu --file=- .
