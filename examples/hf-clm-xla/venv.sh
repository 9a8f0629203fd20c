#!/bin/sh
# Make the virtual environment once, and run a program of it:
#   sh venv.sh                  make it, if it is not there
#   sh venv.sh python train.py  the same, then run its python
# It lies in $TPUCTL_VENV_CACHE, or on the machine in $TPUCTL_ROOT/venvs, under the checksum of its list:
# other pins make another one, a new bundle with the same pins makes none. Recipes with the same
# requirements.txt share it. What one of them needs besides (requirements-more.txt) becomes a small
# environment of its own on top.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${TPUCTL_VENV_CACHE:-${TPUCTL_ROOT:-$HOME/.cache/tpuctl}/venvs}

key() { cat "$@" | sha256sum | cut -c 1-64; }

# The system's Python may have been exchanged since, so the environment's own version is asked for.
ready() { [ -f "$1/complete" ] && [ "$("$1/bin/python" --version)" = "$(cat "$1/complete")" ]; }

packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }

# make ENVIRONMENT LIST [BELOW]: install LIST; what is in the environment BELOW can be imported too.
make() {
    if ready "$1"; then return; fi
    mkdir -p "$cache"
    exec 9>"$1.lock"
    flock 9 # machines of a rehearsal share the folder: one makes it, the others wait
    if ! ready "$1"; then
        echo "venv: installing $(basename "$2") into $1" >&2
        rm -rf "$1" # what a killed install left
        python3 -m venv "$1" >&2 || {
            echo "venv: python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2
            exit 1
        }
        # The lists are complete: torch by itself would also bring triton, which only a GPU needs.
        "$1/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r "$2" >&2
        [ $# -lt 3 ] || packages "$3" >"$(packages "$1")/below.pth"
        "$1/bin/python" --version >"$1/complete" # last: without this line it is not ready
    fi
    exec 9>&-
}

# A rehearsal sets PJRT_DEVICE as a TPU does, and JAX_PLATFORMS=cpu: it needs no TPU library.
pins=$here/requirements.txt
[ "${PJRT_DEVICE:-}" != TPU ] || [ "${JAX_PLATFORMS:-}" = cpu ] || pins=$here/requirements-tpu.txt
more=$here/requirements-more.txt
# On a machine of tpuctl uv makes it: no apt, and neither pip nor venv of the image's Python are needed.
if command -v tpuctl-venv >/dev/null; then
    set -- -- "$@"
    [ ! -f "$more" ] || set -- --no-deps "$more" "$@"
    exec tpuctl-venv --no-deps "$pins" "$@"
fi
venv=$cache/$(key "$here/requirements.txt" "$pins")
make "$venv" "$pins"
if [ -f "$more" ]; then
    below=$venv
    venv=$cache/$(key "$here/requirements.txt" "$pins" "$more")
    make "$venv" "$more" "$below"
fi
[ $# -gt 0 ] || exit 0
program=$1
shift
exec "$venv/bin/$program" "$@"
