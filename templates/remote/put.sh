# Write the file $2 below tpuctl's folder from standard input, atomically. $3 is its sha256, $4 its mode.
set -euo pipefail
target=$1/$2 digest=$3 mode=$4
temporary=$target.tmp.$$
trap 'rm -f "$temporary"' EXIT
mkdir -p "$(dirname "$target")"
sum=$(umask 077; tee --output-error=exit "$temporary" | sha256sum)
[ "${sum%% *}" = "$digest" ] || { echo "the file that arrived is not the one sent" >&2; exit 1; }
chmod "$mode" "$temporary"
mv -fT "$temporary" "$target"
