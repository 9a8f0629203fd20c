"""Show the result of `up`, what stays as it is, and the next step."""

from collections.abc import Callable

from orchestrator.app.up import Goal, Up, UpPrice
from orchestrator.cli.console import print_json, say
from orchestrator.cli.views.plan import after_done
from orchestrator.domain.lease import watch_command
from orchestrator.domain.text.amounts import span_text, ttl_text, usd_text
from orchestrator.planning.failing import JOB_FAILS
from orchestrator.pricing.cost import to_budget, upper_to_ttl


def show(done: Up, goal: Goal, *, as_json: bool) -> None:
    """Print the changes as text or JSON; both include what differs from the file and stays."""
    for text in done.drift:
        say(f"{text}.", style="yellow")
    watch = watch_command(on_vm=done.on_vm)
    if as_json:
        state = done.state.value
        body = {"name": done.name, "bucket": done.bucket, "changes_count": done.changes, "state": state}
        print_json("up", body)
    elif done.outcome is not None:
        say(f"nothing to do: the job is done ({done.message}). {after_done(done.message)}")
    elif goal is Goal.BUCKET_AND_VM:
        say(f"{done.name}: bucket and VM are there, no TPU was requested. Next: tpuctl up", style="green")
    elif done.failing:
        say(f"{done.name} is up, but {JOB_FAILS}: {done.failing}. Next: tpuctl logs", style="yellow")
    elif done.changes == 0:
        say(f"no changes: bucket, VM, TPU and job match tpuctl.yaml. If no watcher runs: {watch}")
    else:
        say(f"{done.name} is up. Next: {watch}", style="green")


def show_price(price: UpPrice, write: Callable[..., None]) -> None:
    """Print the price per hour, and the maximum cost until ttl ends the machines."""
    spec, hourly, unknown = price.spec, price.hourly, price.hourly.unpriced
    hour = sum(line.billed_usd for line in hourly.lines if line.billed_usd is not None)
    most = max(hour, sum(line.upper_usd for line in hourly.lines if line.upper_usd is not None))
    least = "at least " if unknown else ""
    where = " (nothing is billed on the local cloud)" if price.unbilled else ""
    write(f"Price: {least}{_range(hour, most)} an hour{where}", style="bold")
    write(f"  {_what(price)}")
    if unknown:
        write(f"  no price is known for: {', '.join(unknown)}")
    whole = upper_to_ttl(hourly, price.seconds)
    ttl = str(spec.watch.ttl)
    # Started earlier: the rest of its time counts.
    ttl += "" if price.seconds == spec.watch.ttl else f", {span_text(price.seconds)} left"
    write(f"  until ttl ({ttl}): not known" if whole is None else f"  {ttl_text(ttl, whole)}")
    budget = spec.watch.budget_usd
    if budget is not None:
        seconds = None if unknown else to_budget(hourly, budget)
        if seconds is not None and seconds > price.seconds:
            write(f"  watch.budget_usd: {budget:g} USD are not used up before watch.ttl ends it")
            return
        lasts = f", after about {span_text(seconds)}" if seconds else ""
        write(f"  watch.budget_usd: `tpuctl watch` ends it at {budget:g} USD{lasts}")


def _what(price: UpPrice) -> str:
    """Return the names of the machines, with the price class of the TPU."""
    spec = price.spec
    kind = f"TPU {spec.tpu.type} {'spot' if spec.tpu.spot else 'on demand'} in {price.hourly.zone}"
    machine = "" if spec.vm == "none" else f"VM {spec.vm.machine_type}"
    return ", ".join(part for part in (kind if price.with_tpu else "", machine) if part)


def _range(usd: float, most: float) -> str:
    low, high = f"{usd:.2f}", f"{most:.2f}"
    return usd_text(usd) if usd < 0.1 else f"{low} USD" if low == high else f"{low} to {high} USD"
