"""Hold a bash script that is run on a machine over SSH: a text of ours, and the words that it gets as arguments."""

from dataclasses import dataclass
from shlex import quote


@dataclass(frozen=True)
class MachinePath:
    """A path below tpuctl's folder on a machine, which only the machine knows."""

    path: str


@dataclass(frozen=True)
class RemoteScript:
    """
    A script and its *arguments*. In *text*, `$1` is tpuctl's folder on the machine, `$2` the first argument.

    *text* is written by us and never filled in. It runs under the name `tpuctl-NAME` in the process table.
    """

    name: str
    text: str
    arguments: tuple[str | MachinePath, ...] = ()

    def bash(self) -> str:
        """Return what bash runs with tpuctl's folder as its only argument."""
        if not self.arguments:
            return self.text
        # The only place where a value becomes shell: whatever it holds, it stays one word.
        return f'set -- "$1" {" ".join(map(_word, self.arguments))}\n{self.text}'


def _word(argument: str | MachinePath) -> str:
    return f'"$1"/{quote(argument.path)}' if isinstance(argument, MachinePath) else quote(argument)
