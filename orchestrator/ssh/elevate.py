"""Wrap a script so that it runs with the rights that the machine folder needs."""

from shlex import quote

# Without --norc each bash under sshd reads ~/.bashrc again, which may be slow and may print.
_OUTER = """
script={script}
root=${{TPUCTL_ROOT:-}}
[ -n "$root" ] || root={root}
if mkdir -p "$root/bundle" 2>/dev/null && [ -w "$root" ] && [ -w "$root/bundle" ]; then
  exec bash --norc -c "$script" {name} "$root" {arguments}
fi
if ! command -v sudo >/dev/null; then
  echo "the folder $root cannot be written by $(id -un), and there is no sudo" >&2
  exit 77
fi
exec sudo -n bash --norc -c "$script" {name} "$root" {arguments}
"""


def elevated(name: str, script: str, root: str, *arguments: str) -> str:
    """
    Return a command that runs bash *script* with `$1` = the machine folder and *arguments* after it.

    It runs as the login user where the folder is writable, else through `sudo -n`; *name* is its `$0`.
    """
    words = " ".join(quote(word) for word in arguments)
    text = _OUTER.format(script=quote(script), root=quote(root), name=quote(name), arguments=words)
    return f"bash --norc -c {quote(text)}"
