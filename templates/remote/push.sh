# Receive a bundle over standard input and switch to it. $2 is the sha256 of the bundle, $3 the longest wait for
# data in seconds. Prints tpuctl-have or tpuctl-send, then tpuctl-done, or tpuctl-stop after a failure.
# The tree gets its name only after checksum, unpacking and sync. `current` is switched by a rename, unless a push of
# another bundle has started since: a push whose connection is lost may keep running for long.
set -euo pipefail
umask 022
trap '' PIPE
root=$1 digest=$2 timeout=$3
store=$root/bundle tree=$root/bundle/$digest
fresh=$store/.tmp-dir-$digest.$$ link=$root/.current.$$ wanted=$store/wanted

fail() {  # what is still under way is read and dropped: a broken pipe would hide the message
  echo "$1" >&2
  echo tpuctl-stop
  timeout "$timeout" cat >/dev/null || true
  exit 1
}
clean() { rm -rf "$fresh" "$link"; }
trap clean EXIT

delete_leftovers() {  # what cut pushes left; a live one and the agent's own work are not touched
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
  local sum unpacking
  mkdir "$fresh"
  # Unpacked while it arrives; nobody looks there before the sum is known to be right.
  exec 3> >(exec tar -xzf - -C "$fresh" --no-same-owner)
  unpacking=$!
  sum=$(timeout "$timeout" cat 2>/dev/null | tee --output-error=exit /dev/fd/3 | sha256sum) ||
    fail "cannot write to $store"
  exec 3>&-
  [ "${sum%% *}" = "$digest" ] || fail "the bundle arrived cut or changed"
  wait "$unpacking" || fail "cannot unpack the bundle in $store"
  echo "$digest" > "$fresh/.tpuctl-bundle" || fail "cannot write to $store"
  sync -f "$fresh" || fail "cannot write to $store"
  mv -T "$fresh" "$tree" 2>/dev/null || [ -d "$tree" ] || fail "cannot rename the bundle to $tree"
}

delete_leftovers
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
