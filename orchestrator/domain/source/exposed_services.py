"""
Find notebooks and boards that are open to the world, in command lines, settings files and variables.

Anyone who reaches the port of Jupyter or TensorBoard gets a shell or the logs. Only the loopback address is
allowed, for Jupyter with its token; everything else is reported, in every spelling.
"""

import re
from collections.abc import Iterator
from typing import Final

from orchestrator.domain.spec import Spec

SAFE: Final = (
    "leave it out and use `sidecars:` (jupyter: {} or tensorboard: {}), or listen on 127.0.0.1 and keep "
    "the token; reach it through: tpuctl tunnel"
)

_APP: Final = r"(?:NotebookApp|ServerApp|LabApp|JupyterApp|IdentityProvider|PasswordIdentityProvider)"
JUPYTER: Final = re.compile(rf"jupyter|ipython\s+notebook|{_APP}|-m\s+notebook\b", re.IGNORECASE)
_BOARD: Final = re.compile(r"(?:^|[\s\"'(`])(?:\S*bin/)?tensorboard(?:\.main)?(?=[\s\"']|$)")
# Removed first: `pip install jupyter` opens nothing.
_INSTALL: Final = re.compile(
    r"\b(?:pip3?|conda|mamba|uv|apt(?:-get)?)\b[^;&|\n]*\b(?:install|add)\b[^;&|\n]*"
)
_END: Final = r"(?=\s|$|[;&|,)}\]])"
_QUOTE: Final = r"(?:\\?[\"'])"
_WORD: Final = r"(?:token|password|hashed_password)"
_EMPTY_SECRET: Final = (
    # A flag or variable with nothing after its sign, or with empty quotes.
    re.compile(
        rf"(?:--?(?:{_APP}\.)?{_WORD}|\bJUPYTER_(?:TOKEN|PASSWORD))={_QUOTE}{{0,3}}(?:None\b)?{_END}",
        re.IGNORECASE,
    ),
    re.compile(rf"--?(?:{_APP}\.)?{_WORD}{_QUOTE}?[\s,]+(?:''|\"\"|\\?\"\\?\"){_END}", re.IGNORECASE),
    # A line of a settings file, or a variable that Python sets.
    re.compile(
        rf"(?:{_APP}\.{_WORD}|\bJUPYTER_(?:TOKEN|PASSWORD)[\"'\]]*)\s*[=:]\s*"
        r"(?:[bru]?(?:''(?!')|\"\"(?!\"))|None\b)"
    ),
)
_EMPTY_SECRET_JSON: Final = re.compile(rf"[\"']{_WORD}[\"']\s*:\s*(?:\"\"|''|null)")
# 0, 0x0, 0.0 and 0.0.0.0 are the same address to the resolver.
_ZEROS: Final = r"0(?:x0+)?(?:\.0){0,3}"
_COLONS: Final = rf"\[?(?:::(?:0|ffff:{_ZEROS})?|0(?::0){{7}})\]?"
_ALL: Final = rf"(?:{_QUOTE}?(?:{_ZEROS}|\\?\*|{_COLONS}){_QUOTE}?|''|\"\")(?=[\"']|{_END})"
_EVERYWHERE: Final = re.compile(rf"(?:--?ip|{_APP}\.ip)(?:{_QUOTE}?[\s,=:]+{_ALL}|={_END})")
_EVERYWHERE_JSON: Final = re.compile(rf"[\"']ip[\"']\s*:\s*{_ALL}")
_REMOTE: Final = re.compile(
    rf"(?:{_APP}\.allow_remote_access|[\"']allow_remote_access[\"'])[\"']?\s*[=:,\s]\s*[\"']?(?:True|true|1)\b"
)
_LOOPBACK: Final = re.compile(r"(?:127(?:\.\d+){3}|localhost|\[?::1\]?)$")
_ADDRESS: Final = r"(?:=|\s+|[\"'],\s*)(\\?[\"']?[^\s;&|,)}\]\"']*)"
_NOTEBOOK_ADDRESS: Final = re.compile(rf"(?<![\w-])--?(?:{_APP}\.)?ip{_ADDRESS}")
_BOARD_ADDRESS: Final = re.compile(rf"--ho(?:st?)?{_ADDRESS}")
# TensorBoard accepts any unambiguous prefix of a flag, so each of them is matched.
_BOARD_ALL: Final = re.compile(r"--b(?:i(?:n(?:d(?:[_-](?:a(?:ll?)?)?)?)?)?)?(?![\w-])|[\"']--bind_all[\"']")

EMPTY: Final = "Jupyter with an empty token or password: whoever reaches the port has a shell"
EVERYWHERE: Final = "Jupyter listens on 0.0.0.0, that is on all addresses of the machine"
REMOTE: Final = "Jupyter lets other computers in (allow_remote_access)"
ADDRESS: Final = "Jupyter listens on an address that is not the loopback address"
BOARD: Final = "TensorBoard listens on 0.0.0.0 or another address than loopback, and knows no password"


def exposures(text: str, *, about: bool = False) -> Iterator[str]:
    """
    Yield each part of *text* that opens Jupyter or TensorBoard to the world.

    Text that names neither yields nothing, unless it is known to be *about* Jupyter.
    """
    plain = _INSTALL.sub("", text)
    if about or JUPYTER.search(plain):
        yield from _notebook(plain, about=about)
    if any(_board(part) for part in re.split(r"[;&|\n]+", plain) if _BOARD.search(part)):
        yield BOARD


def job_texts(spec: Spec) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield path, text, and whether Jupyter is meant, for all settings that a shell reads."""
    job = spec.job
    texts: dict[tuple[str, ...], str] = {
        ("job", "command"): joined(job.command),
        ("job", "setup"): joined(job.setup),
    }
    about = any(JUPYTER.search(_INSTALL.sub("", text)) for text in texts.values())
    texts |= {("job", "env", name): f"{name}={value}" for name, value in job.env.items()}
    yield from ((path, text, about) for path, text in texts.items())


def joined(text: str) -> str:
    """Return a command with its backslash-continued lines joined."""
    return text.replace("\\\n", " ")


def _notebook(text: str, *, about: bool) -> Iterator[str]:
    if any(form.search(text) for form in _EMPTY_SECRET) or (about and _EMPTY_SECRET_JSON.search(text)):
        yield EMPTY
    if _EVERYWHERE.search(text) or (about and _EVERYWHERE_JSON.search(text)):
        yield EVERYWHERE
    elif any(_foreign(part, _NOTEBOOK_ADDRESS) for part in _commands(text)):
        yield ADDRESS
    if _REMOTE.search(text):
        yield REMOTE


def _commands(text: str) -> Iterator[str]:
    """Yield the simple commands that start Jupyter; in other commands `--ip` may mean anything."""
    return (part for part in re.split(r"[;&|\n]+", text) if JUPYTER.search(part))


def _foreign(text: str, form: "re.Pattern[str]") -> bool:
    return any(not _LOOPBACK.match(found[1].strip("\\\"'")) for found in form.finditer(text))


def _board(command: str) -> bool:
    """Return whether a command opens TensorBoard with its options; values of other flags are ignored."""
    start = _BOARD.search(command)
    if start is None or re.search(r"--[\w-]+[=\s]*$", command[: start.start()]):
        return False
    # Only options after the program: those before it belong to another one.
    rest = command[start.end() :]
    return bool(_BOARD_ALL.search(rest)) or _foreign(rest, _BOARD_ADDRESS)
