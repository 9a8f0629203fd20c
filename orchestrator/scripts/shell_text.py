"""What can reach a machine as text: limits of bash, of Linux and of environment variables."""

import re

from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError

LONGEST_VALUE = 120_000  # bytes; Linux refuses one argument or variable above 128 KiB

# Bash refuses to assign the first six and computes the others itself: a value could not come through.
BASH_OWNED = frozenset((
    "BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_", "BASHPID", "BASH_ARGC",
    "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_ALIASES", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE",
    "BASH_SUBSHELL", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS",
    "HISTCMD", "LINENO", "OPTIND", "PIPESTATUS", "POSIXLY_CORRECT", "RANDOM", "SECONDS", "SHLVL", "SRANDOM",
    "PWD", "OLDPWD",
))  # fmt: skip


def check_environment(spec: Spec) -> None:
    """Refuse variables that bash would not hand to the job as they are."""
    for name, value in spec.job.env.items():
        where = f"job.env.{name!a}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"{where}: not a name of a variable", hint="use letters, digits and '_' only")
        if name in BASH_OWNED or name.startswith("TPUCTL_"):
            owner = "tpuctl" if name.startswith("TPUCTL_") else "bash"
            raise UsageError(f"{where}: {owner} sets this variable itself", hint="choose another name")
        check_text(f"job.env.{name}", value)


def check_text(where: str, text: str) -> None:
    """Refuse text that no environment variable can hold."""
    if "\0" in text:
        raise UsageError(f"{where}: holds a NUL character", hint="remove it", changed="nothing was changed")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        message = f"{where}: character {error.start} is a lone surrogate and not Unicode text"
        raise UsageError(message, hint="remove it", changed="nothing was changed") from error
    if size > LONGEST_VALUE:
        raise UsageError(
            f"{where}: {size:,} bytes are too long; at most {LONGEST_VALUE:,} fit",
            hint="move the text into a file of the source folder",
            changed="nothing was changed",
        )
