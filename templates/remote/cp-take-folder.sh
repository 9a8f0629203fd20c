# Unpack the tar on standard input as the new folder $2, or in the folder $2 as $3; $4 is the name of its last file.
# Status 5 is THERE in ssh/transfer/copy.py.
set -euo pipefail
if [ -d "$1/current" ]; then cd "$1/current"; else cd "$1"; fi
target=$2 name=$3 mark=$4
case $target in */) mkdir -p -- "$target" ;; esac
[ ! -d "$target" ] || target=${target%/}/$name
[ ! -e "$target" ] && [ ! -L "$target" ] || { echo "there is $target already" >&2; exit 5; }
# Beside the target, since a move between file systems is not atomic. A copy that was killed has left its part, and
# nobody holds the lock on that.
parts=$(dirname -- "$target")/.$(basename -- "$target").tpuctl-part
for old in "$parts".*; do
  [ ! -d "$old" ] || flock --nonblock -- "$old" rm -rf -- "$old" || true
done
# Until the lock is held, another copy takes a new part for one of a killed copy: then it is made again.
while :; do
  part=$(mktemp -d -- "$parts.XXXXXX")
  trap 'rm -rf -- "$part"' EXIT
  { exec 9<"$part"; } 2>/dev/null || continue
  flock 9
  [ ! "$part" -ef /dev/fd/9 ] || break
done
tar --extract --file=- --directory="$part" --no-same-owner
# A stream that was cut between two files looks whole to tar.
[ -f "$part/$mark" ] || { echo "not all of it arrived" >&2; exit 3; }
rm -- "$part/$mark"
chmod 755 -- "$part"
mv -T -- "$part" "$target"
