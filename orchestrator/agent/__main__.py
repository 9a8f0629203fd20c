"""Parse the agent's commands: run, task, follow, stop, notice, self-delete, status, fetch, exec, and so on."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import List, Mapping, Optional

from orchestrator.agent.agent import Agent
from orchestrator.agent.attempt.install_bundle import fetch
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.context import wire
from orchestrator.agent.fleet.task import run_task
from orchestrator.agent.fleet.task_part import follow
from orchestrator.agent.job_shell import enter_job_folder, shell_argv
from orchestrator.agent.layout import Layout, read_json
from orchestrator.agent.machine import apt, ray
from orchestrator.agent.machine.emulator_guard import check, for_job, for_setup, trusted
from orchestrator.agent.machine.processes import start_time
from orchestrator.agent.machine.self_delete import NodeApi, SelfDeletion, made_until, own_node
from orchestrator.agent.machine.venv import install_command
from orchestrator.agent.machine.venv import main as venv
from orchestrator.agent.machine_clock import SYSTEM_CLOCK
from orchestrator.agent.settings import layout_of, read_settings
from orchestrator.agent.side_threads import say
from orchestrator.contract.backoff import polled
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.preemption_notice import SHUTDOWN_SCRIPT
from orchestrator.contract.replacing import write_atomically


def main(argv: Optional[List[str]] = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 wrong usage or wrong job.env."""
    parser = argparse.ArgumentParser(
        prog="agent.pyz", description="Keeps a training job running on one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="keep the job running until it is done")
    stop = commands.add_parser("stop", help="ask the running agent to stop the job, commit and leave")
    stop.add_argument("--hold", metavar="REASON", help="also keep cron from starting it again")
    commands.add_parser(
        "notice", help="the machine is being taken away: stop, commit, and wait for the agent to leave"
    )
    commands.add_parser(
        "self-delete", help="delete this TPU if the deployment's time is over and no watcher runs"
    )
    commands.add_parser("status", help="print the last heartbeat as JSON")
    commands.add_parser("fetch", help="unpack the bundle of job.env and switch to it")
    start = commands.add_parser("exec", help="become another program, unless it could leave a rehearsal")
    start.add_argument("--install", action="store_true", help="foreign hosts may be reached, as by setup")
    start.add_argument("program", nargs="+", help="program and arguments; write -- before them")
    inside = commands.add_parser(
        "enter", help="become a shell in the source folder, with the job's variables"
    )
    inside.add_argument("line", nargs="*", help="a line to run there instead; write -- before it")
    commands.add_parser("venv", help="make a virtual environment and run a command in it: tpuctl-venv --help")
    commands.add_parser("task", help="run one task of a fleet's job; Slurm starts it")
    commands.add_parser("follow", help="run this node's parts of tasks that began on other machines")
    commands.add_parser("apt", help="wait for the lock of apt's lists, then run apt-get or apt")
    words = sys.argv[1:] if argv is None else argv
    try:
        # These two forward options of other programs, which argparse would parse itself.
        if words[:1] == ["venv"]:
            return _venv(words[1:], os.environ)
        if words[:1] == ["apt"] and len(words) > 1:
            return apt.main(words[1:], os.environ, layout_of(os.environ), time.sleep, time.monotonic)
        asked = parser.parse_args(words)
        return _dispatch(asked, os.environ)
    except AgentError as error:
        print(error, file=sys.stderr)
        return 2 if words[:1] == ["run"] else 1


def _dispatch(asked: argparse.Namespace, environ: Mapping[str, str]) -> int:
    layout = layout_of(environ)
    if asked.command == "run":
        return _run(environ)
    if asked.command == "task":
        return run_task(environ, _run)
    if asked.command == "follow":
        return follow(environ)
    if asked.command == "stop":
        return _stop(layout, asked.hold)
    if asked.command == "notice":
        return _notice(layout, SHUTDOWN_SCRIPT)
    if asked.command == "self-delete":
        return _self_delete(layout, environ)
    if asked.command == "status":
        pid = _running(layout)
        print(json.dumps(dict(read_json(layout.status), agent_pid=pid), sort_keys=True))
        return 0
    if asked.command == "exec":
        return _exec(asked.program, for_setup(environ) if asked.install else for_job(environ))
    settings = read_settings(environ)
    if asked.command == "enter":
        inside = enter_job_folder(settings, environ)
        return _exec(shell_argv(settings, asked.line, inside), inside)
    check(environ)
    layout.make()
    fetch(
        layout,
        JobBucket.from_environ(settings.bucket, environ, Metadata.from_environ(environ)),
        settings.bundle,
    )
    return 0


def _run(environ: Mapping[str, str]) -> int:
    settings = read_settings(environ)
    # cron starts the agent every minute, also after the job is done and on machines that run no job.
    if settings.layout.stop.exists() or environ.get("TPUCTL_RUNS_JOB") == "0":
        return 0
    settings.layout.make()
    own = Path(sys.argv[0]).absolute()
    install_command(settings.layout, own)
    ray.install_command(settings.layout)
    apt.install_commands(settings.layout.programs, own, environ)
    return Agent(wire(settings, environ, SYSTEM_CLOCK)).run()


def _venv(words: List[str], environ: Mapping[str, str]) -> int:
    """Run `tpuctl-venv`: make the environment, run the command in it."""

    def bucket() -> JobBucket:
        own = trusted(environ)
        if not environ.get("TPUCTL_BUCKET"):
            raise AgentError(
                "TPUCTL_BUCKET is not set: uv cannot be fetched. Run this from job.setup or job.command"
            )
        return JobBucket.from_environ(environ["TPUCTL_BUCKET"], own, Metadata.from_environ(own))

    return venv(words, environ, layout_of(environ), bucket)


def _exec(program: List[str], environ: Mapping[str, str]) -> int:
    """
    Replace this process by *program*.

    Raise UnsafeError if it could leave a rehearsal, AgentError if it fails.
    """
    check(environ)
    try:
        # exec, so that signals of the service manager reach the program itself.
        os.execvpe(program[0], program, dict(environ))  # noqa: S606 (no shell is wanted)
    except OSError as error:
        raise AgentError(f"{program[0]} cannot be started: {error.strerror}") from error


def _stop(layout: Layout, hold: Optional[str]) -> int:
    if hold:
        # Before the signal: cron could start another agent as soon as this one has ended.
        write_atomically(layout.stop, hold + "\n")
    pid = _running(layout)
    if pid is None:
        say("no agent is running")
        return 0
    with contextlib.suppress(ProcessLookupError):
        # SIGUSR1 asks for a stop; SIGTERM would mean that the machine is preempted.
        os.kill(pid, signal.SIGUSR1)
    return 0


def _self_delete(layout: Layout, environ: Mapping[str, str]) -> int:
    """Delete this machine's TPU node if the deployment's time is over."""
    settings, own = read_settings(environ), trusted(environ)
    metadata = Metadata.from_environ(own)
    bucket = JobBucket.from_environ(settings.bucket, own, metadata)

    def leave(timeout: float) -> None:
        _notice(layout, timeout)

    api = NodeApi(own, metadata)
    return SelfDeletion(settings, made_until(environ), bucket, api, partial(own_node, metadata), leave).step()


def _notice(layout: Layout, timeout: float) -> int:
    """Forward the preemption notice to the agent; wait until it has ended, at most *timeout* seconds."""
    pid = _running(layout)
    if pid is None:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    # The agent is another process, so this wait is real time.
    gone = polled(
        lambda: _running(layout) != pid,
        0.1,
        now=time.monotonic,
        wait=time.sleep,
        timeout=timeout,
        longest=0.1,
    )
    return 0 if gone else 1


def _running(layout: Layout) -> Optional[int]:
    """Return the process id of the running agent, None if there is none."""
    try:
        pid, started = layout.pid.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == started else None


if __name__ == "__main__":
    sys.exit(main())
