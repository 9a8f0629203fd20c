"""Suggest the word that a mistyped one was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_EDITS = 2


def edits(one: str, other: str) -> int:
    """Count the edits between two words: insert, delete, replace, or swap of neighbours."""
    older: list[int] = []
    previous = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            best = min(row[-1] + 1, previous[j] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, older[j - 2] + 1)
            row.append(best)
        older, previous = previous, row
    return previous[-1]


def closest(word: str, options: Iterable[str], limit: int = 3) -> list[str]:
    """Return the options nearest to *word*: those one or two edits away, at most half of it, else a similar one."""
    known = sorted(set(options))
    # Words of very different length cannot be near; this also bounds the work on absurd input.
    comparable = [name for name in known if abs(len(name) - len(word)) <= MAX_EDITS]
    scored = [(edits(word.lower(), name.lower()), name) for name in comparable]
    near = [(count, name) for count, name in scored if count <= MAX_EDITS and 2 * count <= len(word)]
    if near:
        fewest = min(near)[0]
        return [name for count, name in near if count == fewest][:limit]
    # Cut, because difflib takes quadratic time and the word may be a pasted file.
    return get_close_matches(word[:80], known, n=1, cutoff=0.6)


def join(words: Iterable[str], last: str = "or") -> str:
    """Join words in English: `a, b or c`."""
    items = list(words)
    return f" {last} ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `did you mean a or b?`, or an empty text if no option is near."""
    near = closest(word, options)
    return f"did you mean {join(near)}?" if near else ""
