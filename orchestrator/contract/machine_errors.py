"""
The errors of a machine's agent, by what to do next; those of tpuctl are in `errors.py`, which machines do not have.

    AgentError
    ├── TransientError      a retry may help: network, 408, 429, 5xx; its twin in tpuctl: TPU-400
    ├── PreconditionError   another process wrote the object first; its twin in tpuctl: TPU-412
    └── FinalError          a retry does not help
        ├── DamagedError    data does not match its manifest, its name, or an earlier read
        ├── FencedError     a later attempt or incarnation exists, so this one must not write any more
        ├── SliceSizeError  another number of workers has saved the checkpoint
        └── UnsafeError     a child process of a rehearsal could reach the real service

A twin has the same name and cause; the agent's has neither code nor hint, as its text is for the log.
"""

from __future__ import annotations


class AgentError(Exception):
    """Base of the agent's errors; its text is for the log."""


class TransientError(AgentError):
    """Report a failure that a retry may cure: network, 408, 429, 5xx."""


class PreconditionError(AgentError):
    """Report that the object's generation was not the expected one: another process wrote it first."""


class FinalError(AgentError):
    """Report a failure that a retry does not cure."""


class DamagedError(FinalError):
    """Report data that does not match its manifest, its name, or an earlier read."""


class FencedError(FinalError):
    """Report that a later attempt or incarnation exists, so this one must not write any more."""


class SliceSizeError(FinalError):
    """Report a checkpoint that another number of workers has saved."""


class UnsafeError(FinalError):
    """Report a rehearsal in which a child process could reach the real service."""
