# Write the file $2 from standard input, atomically; into a folder under the name $4. $3 is the sha256.
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
target=$2 digest=$3 name=$4
case $target in */) mkdir -p "$target" ;; esac
[ ! -d "$target" ] || target=${target%/}/$name
# A copy that was killed has left its part, and nobody holds the lock on that.
for old in "$target".tpuctl-part.*; do
  [ ! -f "$old" ] || flock --nonblock "$old" rm -f -- "$old" || true
done
part=$target.tpuctl-part.$$
trap 'rm -f -- "$part"' EXIT
# Until the lock is held, another copy takes a new part for one of a killed copy: then it is made again.
while :; do
  exec 9>"$part"
  flock 9
  [ ! "$part" -ef /dev/fd/9 ] || break
done
sum=$(tee --output-error=exit "$part" | sha256sum)
[ "${sum%% *}" = "$digest" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
mv -fT "$part" "$target"
