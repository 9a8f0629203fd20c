"""
How a mechanism is switched off: what is patched, and what must fail then.

A switch names tests of the normal suite, or the seed of a run that is known to break. The seed is where the
search begins: runs change with the simulation, so when it does not bite any more, others are run.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """
    One mechanism off: *patches* are (module or class, name, replacement).

    One of the *tests* must fail, within *timeout* seconds, or a run must break *invariant*; the search
    begins with *seed*.
    """

    patches: tuple
    tests: tuple[str, ...] = ()
    invariant: str = ""
    seed: int = 0
    timeout: float = 60.0
