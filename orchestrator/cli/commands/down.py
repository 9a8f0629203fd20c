"""tpuctl down: delete everything that tpuctl made."""

from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import confirm, confirm_name, deployment_options, must_answer, yes_option

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.domain.observation import Node, Vm
    from orchestrator.engine.delete import Left, Sweep
    from orchestrator.errors import LeaseHeldError


@click.command("down")
@deployment_options
@yes_option
@click.option(
    "--take-over", is_flag=True, help="Delete although another tpuctl holds the lease; it is named first."
)
@click.option("--delete-data", is_flag=True, help="Delete the bucket too: checkpoints, logs, everything.")
def command(
    choice: Choice,
    yes: bool,
    delete_data: bool,
    take_over: bool,
) -> None:
    """
    Delete TPU and VM, then list by label what is left. The bucket's data stays without --delete-data.

    It can be run again at any time, and finds its resources by label even without a record.
    """
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.leaving import leaving
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.engine.delete import Sweep

    must_answer(yes=yes)
    printer = EventPrinter()
    session = Session(choice, printer, forgiving=True)
    ask = (lambda held: _take_over(held, yes=yes)) if take_over else None
    sweep_expired(session)
    with (
        leaving("what was asked to go is still going, and the rest stays", "tpuctl down"),
        session.alone("down", take_over=ask),
    ):
        sweep = Sweep(session.deployment, alone=not take_over)
        with printer:
            has_data = _announce(session, sweep, delete_data=delete_data)
            strays = _elsewhere(session, sweep)
        saved = _end_of_costs(session)
        if delete_data and has_data:
            confirm_name(session.spec.name, "The data cannot be brought back.", yes=yes)
        else:
            confirm("Delete the machines?", yes=yes)
        sweep.begin()
        printer.now("everything that carries our label is being deleted")
        with printer:
            left = list(sweep.machines())
            if not left:
                kept = sweep.bucket(session.blueprint.bucket) if delete_data else sweep.close()
                left += [kept] if kept else []
        if not left:
            _forget(session, delete_data=delete_data)
    _report(session, left, strays, saved, kept=has_data and not delete_data, as_json=choice.as_json)


def _announce(session: "Session", sweep: "Sweep", *, delete_data: bool) -> bool:
    """Say what will be deleted and what will not; return whether there may be a bucket."""
    from orchestrator.cli.console import say
    from orchestrator.domain.observation import Absent

    found = sweep.find()
    for item in found:
        say(f"- {item.kind} {item.name} {item.zone} {item.state}")
    bucket = session.blueprint.bucket
    there = not isinstance(session.deployment.cloud.buckets.observe(bucket), Absent)
    if there:
        say(f"- bucket {bucket} with all its data" if delete_data else f"  bucket {bucket} is kept")
        _name_unclaimed(session, delete_data=delete_data)
    else:
        say(f"  there is no bucket {bucket}")
    if not found:
        say("  there are no machines")
    return there


def _elsewhere(session: "Session", sweep: "Sweep") -> "tuple[Node | Vm, ...]":
    """Name the machines of our label in zones that neither the file nor the record names; they stay."""
    from orchestrator.cli.console import say
    from orchestrator.domain.all_zones import deletion_command
    from orchestrator.domain.observation import Present, Unknown

    tpus, vms = sweep.elsewhere()
    for kind, seen in (("TPU", tpus), ("VM", vms)):
        if isinstance(seen, Unknown):
            say(f"  other zones were not looked at for a {kind}: {seen.why}")
        elif seen.value.unreachable:
            silent = ", ".join(seen.value.unreachable)
            say(f"  not looked at for a {kind}, since they did not answer: {silent}")
    found: list[Node | Vm] = []
    found += tpus.value.found if isinstance(tpus, Present) else ()
    found += vms.value.found if isinstance(vms, Present) else ()
    for one in found:
        what = f"{_kind(one)} {one.name} {one.zone} {one.state.name}"
        say(f"  {what} carries our label, and neither file nor record names its zone: it stays.")
        say(f"  To delete it: {deletion_command(one, session.project)}")
    return tuple(found)


def _kind(machine: "Node | Vm") -> str:
    from orchestrator.domain.observation import Vm

    return "VM" if isinstance(machine, Vm) else "TPU"


def _name_unclaimed(session: "Session", *, delete_data: bool) -> None:
    """Say that the bucket holds files which no checkpoint contains: perhaps the only copy of the model."""
    from contextlib import suppress

    from orchestrator.cli.console import say
    from orchestrator.domain.amounts import size_text
    from orchestrator.engine.unclaimed import read_unclaimed
    from orchestrator.errors import UNFORESEEN, TpuctlError
    from orchestrator.planning.unclaimed import FETCH

    # A bucket that cannot be read, and whatever stands there, stops no deletion of machines.
    with suppress(TpuctlError, *UNFORESEEN):
        kept = read_unclaimed(session.cloud.store)
        count, size = sum(one.count for one in kept), sum(one.size for one in kept)
        goes = "and with it" if delete_data else "with"
        if kept:
            say(f"  {goes} {count} unclaimed file{'' if count == 1 else 's'}, {size_text(size)} ({FETCH})")


def _take_over(held: "LeaseHeldError", *, yes: bool) -> None:
    """Name the holder of the lease and ask whether to go on without it."""
    from orchestrator.cli.console import say

    say(f"{held.message}; if it still works, it may make machines again")
    confirm("Go on without the lease?", yes=yes)


def _end_of_costs(session: "Session") -> float:
    """Say what an hour of all that is deleted costs, and return it; 0 where this computer knows of nothing."""
    from orchestrator.cli.console import say
    from orchestrator.domain.amounts import usd_text
    from orchestrator.errors import UNFORESEEN
    from orchestrator.pricing.bill import rate_now

    try:
        saved = rate_now(session.spec, session.catalog, session.records.current)
    except UNFORESEEN as error:
        say(f"  what it costs is not known ({type(error).__name__}); it is deleted all the same")
        return 0.0
    if saved:
        say(f"  this ends about {usd_text(saved)} an hour (an estimate)")
    return round(saved, 4)


def _forget(session: "Session", *, delete_data: bool) -> None:
    """Forget what went with the machines, and with the data."""
    import shutil

    from orchestrator.ssh.keys import forget_key

    if delete_data:
        shutil.rmtree(session.folder, ignore_errors=True)
    else:
        forget_key(session.folder)


def _report(
    session: "Session",
    ours: "list[Left]",
    strays: "tuple[Node | Vm, ...]",
    saved: float,
    *,
    kept: bool,
    as_json: bool,
) -> None:
    """Say that nothing is left; raise LeftoverError for what is: *ours*, and *strays* that were not touched."""
    from dataclasses import asdict

    from orchestrator.cli.console import print_json, say
    from orchestrator.domain.all_zones import deletion_command
    from orchestrator.engine.delete import Left
    from orchestrator.errors import LeftoverError

    foreign = (Left(_kind(one), one.name, one.zone, f"{one.state.name}, not touched") for one in strays)
    left = [*ours, *foreign]
    if as_json:
        print_json(
            "down", {"left": [asdict(item) for item in left], "data_kept": kept, "saved_usd_hour": saved}
        )
    if left:
        names = "; ".join(f"{i.kind} {i.name} {i.zone} ({i.state})" for i in left)
        commands = [
            *(["tpuctl down"] if ours else []),
            *(deletion_command(n, session.project) for n in strays),
        ]
        raise LeftoverError(
            f"left: {names}", hint=f"run: {' ; '.join(commands)}", unchanged="everything else is gone"
        )
    _stop_idle_cloud(session, as_json=as_json)
    if as_json:
        return
    where = f"; data is kept in gs://{session.blueprint.bucket}" if kept else ""
    say(f"nothing is left of {session.spec.name}{where}", style="green")


def _stop_idle_cloud(session: "Session", *, as_json: bool) -> None:
    """Stop the local cloud with its last deployment, unless somebody had started it by hand."""
    from orchestrator.cli.console import say

    if session.choice.cloud != "local":
        return
    from orchestrator.emulator.control import stop_if_idle

    if stop_if_idle() and not as_json:
        say("the local cloud had nothing left to do and was stopped")
