"""
Processes that share a long run, each kept on a processor of its own.

The runs of a simulation hand control from thread to thread; when these wander between processors,
each handing over takes three times as long.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice


def workers(jobs, initializer=None):
    """Return a pool of *jobs* processes; each begins with *initializer*."""
    places = multiprocessing.SimpleQueue()
    for place in islice(cycle(_processors()), jobs):
        places.put(place)
    return ProcessPoolExecutor(jobs, initializer=_settle, initargs=(places, initializer))


def _processors():
    """Return the processors that may be used, or nothing to choose from where the system does not say."""
    ask_system = getattr(os, "sched_getaffinity", None)
    return [None] if ask_system is None else sorted(ask_system(0))


def _settle(places, initializer):
    place = places.get()
    if place is not None:
        os.sched_setaffinity(0, {place})
    if initializer is not None:
        initializer()
