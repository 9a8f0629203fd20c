"""What can go wrong on a machine, by what to do next."""

from __future__ import annotations


class AgentError(Exception):
    """Tell the reader of the log what failed."""


class TransientError(AgentError):
    """Report a failure that the same call may not meet again: network, 408, 429, 5xx."""


class PreconditionError(AgentError):
    """Report that the object's generation was not the expected one: somebody wrote first."""


class FinalError(AgentError):
    """Report a failure that the same call will meet again."""


class TornError(FinalError):
    """Report data that does not match its manifest, its name or what it was a moment ago."""


class FencedError(FinalError):
    """Report that a later attempt or incarnation exists, so that this one must not write."""


class SliceSizeError(FinalError):
    """Report a checkpoint that another number of workers saved."""


class UnsafeError(FinalError):
    """Report a rehearsal in which a child could reach the real service."""
