# Write the file $2 from standard input, atomically; into a folder under the name $4. $3 is the sha256.
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
target=$2 digest=$3 name=$4
case $target in */) mkdir -p "$target" ;; esac
[ ! -d "$target" ] || target=${target%/}/$name
part=$target.tpuctl-part.$$
trap 'rm -f "$part"' EXIT
sum=$(tee --output-error=exit "$part" | sha256sum)
[ "${sum%% *}" = "$digest" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
mv -fT "$part" "$target"
