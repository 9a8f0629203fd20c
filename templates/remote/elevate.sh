# Run the script $2 with tpuctl's folder as its $1, as root if the login may not write there. $1 is the folder of
# a machine that names none.
root=${TPUCTL_ROOT:-$1}
if mkdir -p "$root/bundle" 2>/dev/null && [ -w "$root" ] && [ -w "$root/bundle" ]; then
  exec bash --norc -c "$2" "$0" "$root"
fi
if ! command -v sudo >/dev/null; then
  echo "the folder $root cannot be written by $(id -un), and there is no sudo" >&2
  exit 77
fi
exec sudo -n bash --norc -c "$2" "$0" "$root"
