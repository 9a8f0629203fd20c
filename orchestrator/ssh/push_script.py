"""
The script that receives a bundle on the machine: all of it, or nothing.

It prints the line `tpuctl-have` or `tpuctl-send`, then `tpuctl-done`, or `tpuctl-stop` when it failed.
`$1` is the machine folder, `$2` the sha256 of the bundle, `$3` the longest time in seconds that it waits
for data. The tree gets its name only after checksum, unpacking and sync; `current` is switched by a rename,
unless a push of another bundle has begun meanwhile: one whose link was lost may work on for long.
"""

NAME = "tpuctl-push"

SCRIPT = r"""
set -euo pipefail
umask 022
trap '' PIPE
root=$1 digest=$2 patience=$3
store=$root/bundle tree=$root/bundle/$digest
part=$store/.tmp-$digest.$$ fresh=$store/.tmp-dir-$digest.$$ link=$root/.current.$$ wanted=$store/wanted

fail() {  # what is still under way is read and dropped: a broken pipe would hide the message
  echo "$1" >&2
  echo tpuctl-stop
  timeout "$patience" cat >/dev/null || true
  exit 1
}
clean() { rm -rf "$part" "$fresh" "$link"; }
trap clean EXIT

sweep() {  # what cut pushes left; a live one and the agent's own work are not touched
  local old pid
  for old in "$store"/.tmp-*.*; do
    pid=${old##*.}
    case $pid in *[!0-9]*) continue ;; esac
    grep -qs tpuctl-push "/proc/$pid/cmdline" || rm -rf "$old"
  done
}

switch() {
  [ "$(readlink "$root/current" || true)" = "bundle/$digest" ] && return 0
  [ "$(cat "$wanted")" = "$digest" ] || fail "a push of another bundle has begun meanwhile"
  ln -s "bundle/$digest" "$link" || fail "cannot write to $root"
  mv -fT "$link" "$root/current" || fail "cannot switch $root/current"
}

receive() {
  local sum
  sum=$(timeout "$patience" cat 2>/dev/null | tee --output-error=exit "$part" | sha256sum) ||
    fail "cannot write to $store"
  [ "${sum%% *}" = "$digest" ] || fail "the bundle arrived cut or changed"
  mkdir "$fresh"
  tar -xzf "$part" -C "$fresh" --no-same-owner || fail "cannot unpack the bundle in $store"
  echo "$digest" > "$fresh/.tpuctl-bundle" || fail "cannot write to $store"
  sync -f "$fresh" || fail "cannot write to $store"
  mv -T "$fresh" "$tree" 2>/dev/null || [ -d "$tree" ] || fail "cannot rename the bundle to $tree"
}

sweep
echo "$digest" > "$wanted" || fail "cannot write to $store"
if [ -d "$tree" ]; then
  switch
  echo tpuctl-have
  exit 0
fi
echo tpuctl-send
receive
switch
echo tpuctl-done
"""
