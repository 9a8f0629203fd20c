#!/bin/sh
# Make the virtual environment for requirements.txt once, and run a program of it:
#   sh venv.sh                  make it, if it is not there
#   sh venv.sh python train.py  the same, then run its python
# It lies in $TPUCTL_VENV_CACHE, or on the machine in $TPUCTL_ROOT/venvs, under the checksum of both
# lists of requirements: other pins make another one, a new bundle with the same pins makes none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# A rehearsal sets PJRT_DEVICE as a TPU does, and JAX_PLATFORMS=cpu: it needs no TPU library.
pins=requirements bare=requirements-no-deps
if [ "${PJRT_DEVICE:-}" = TPU ] && [ "${JAX_PLATFORMS:-}" != cpu ]; then
    pins=requirements-tpu bare=requirements-tpu-no-deps
fi
# On a machine of tpuctl uv makes it: no apt, and neither pip nor venv of the image's Python are needed.
if command -v tpuctl-venv >/dev/null; then
    exec tpuctl-venv -r "$here/$pins.txt" --no-deps "$here/$bare.txt" -- "$@"
fi
key=$(cat "$here/$pins.txt" "$here/$bare.txt" | sha256sum | cut -c 1-64)
cache=${TPUCTL_VENV_CACHE:-${TPUCTL_ROOT:-$HOME/.cache/tpuctl}/venvs}
venv=$cache/$key

# The system's Python may have been exchanged since, so the environment's own version is asked for.
ready() { [ -f "$venv/complete" ] && [ "$("$venv/bin/python" --version)" = "$(cat "$venv/complete")" ]; }

install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@" >&2; }

if ! ready; then
    mkdir -p "$cache"
    exec 9>"$cache/$key.lock"
    flock 9 # machines of a rehearsal share the folder: one makes it, the others wait
    if ! ready; then
        echo "venv: installing $pins.txt into $venv" >&2
        rm -rf "$venv" # what a killed install left
        python3 -m venv "$venv" >&2 || {
            echo "venv: python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2
            exit 1
        }
        install -r "$here/$pins.txt"
        # tf_keras asks for the big tensorflow, which would write over the one that is pinned.
        install --no-deps -r "$here/$bare.txt"
        "$venv/bin/python" --version >"$venv/complete" # last: without this line it is not ready
    fi
    exec 9>&-
fi
[ $# -gt 0 ] || exit 0
program=$1
shift
exec "$venv/bin/$program" "$@"
