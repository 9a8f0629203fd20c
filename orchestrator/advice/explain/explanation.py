"""Define what an explanation consists of."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from orchestrator.domain.lease import watch_command
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Present, VmState, World
from orchestrator.domain.plan import MAKING, Change, Decision, Kind, LoopRule, Plan, kind_title
from orchestrator.domain.record import Record, Refusal
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import DeploymentState, WatcherStatus

DONE = "ok"
"""What the journal writes as the outcome of a change that was made."""


@dataclass(frozen=True)
class Entry:
    """One change of the intent journal; *result* is empty while none is known."""

    at: float
    kind: str
    verb: str
    name: str
    message: str
    result: str = ""


@dataclass(frozen=True)
class DeploymentFacts:
    """
    Everything that an explanation uses: what `status` reads, and this computer's journal.

    *usd* is the cost so far, *upper_usd* that by the highest prices, by which a budget ends. *deleted* says in
    words that its data was deleted on purpose, "" if it was not.
    """

    spec: Spec
    world: World
    record: Record
    plan: Plan
    state: DeploymentState = DeploymentState.RUNNING
    usd: float = 0.0
    upper_usd: float = 0.0
    watcher: WatcherStatus | None = None
    journal: tuple[Entry, ...] = ()
    deleted: str = ""
    unbilled: bool = False
    """Nothing of it is billed: it is on the local cloud."""
    next_pass_at: float | None = None
    """When the watcher makes its next pass, as it has published, in seconds since the epoch."""

    @property
    def watch_command(self) -> str:
        """Return the command that starts a watcher; a VM that is to run the loop has to run itself."""
        vm, on_vm = self.world.vm, self.spec.watch.on_vm
        stopped = on_vm and isinstance(vm, Present) and vm.value.state is VmState.TERMINATED
        return "tpuctl up" if stopped else watch_command(on_vm=on_vm)


@dataclass(frozen=True)
class Evidence:
    """One observation: where it comes from (*source*), when (None: no time is recorded), and what."""

    source: str
    at: float | None
    message: str


@dataclass(frozen=True)
class ExplainedItem:
    """
    Explain one resource, *what* by the word of its kind; *ok* says that it needs no attention.

    *rule* is the one that decided. *when* is the time of the next step in seconds since the epoch,
    None if not known or if nothing follows; *hint* is what a person can do. *needs_watcher* says that a watcher
    makes it.
    """

    what: str
    state: str
    message: str
    rule: LoopRule
    evidence: tuple[Evidence, ...] = ()
    next: str = ""
    when: float | None = None
    hint: str = ""
    ok: bool = False
    needs_watcher: bool = True

    @property
    def title(self) -> str:
        """Return what is explained, for people."""
        return kind_title(self.what)


@dataclass(frozen=True)
class Explanation:
    """The state of the deployment, an item for each thing explained, the most important sentence (*headline*)."""

    name: str
    state: DeploymentState
    headline: str
    observed_at: float
    items: tuple[ExplainedItem, ...]
    rules: Mapping[LoopRule, str] = field(default_factory=dict)

    @property
    def says_first_message(self) -> bool:
        """Return whether the headline is the reason of the first item, which then need not say it again."""
        return not self.items[0].ok

    def as_dict(self) -> dict[str, object]:
        """Return the explanation as `--json` prints it."""
        items = [{**asdict(item), "rule": item.rule.value} for item in self.items]
        return {
            "name": self.name,
            "state": self.state.value,
            "headline": self.headline,
            "observed_at": self.observed_at,
            "items": items,
            "rules": {rule.value: text for rule, text in self.rules.items()},
        }


def changes_text(changes: tuple[Change, ...]) -> str:
    """Return which changes will be made, in words."""
    return ", then ".join(
        f"{c.verb.word} {c.kind.title} {c.name}".rstrip() + (f" in {c.zone}" if c.zone else "")
        for c in changes
    )


def next_pass(facts: DeploymentFacts, decision: Decision | None = None) -> float | None:
    """Return the time of the next pass in seconds since the epoch; None without a watcher."""
    # Without a watcher no plan is carried out, so there is no time to promise.
    if facts.watcher is None or not facts.watcher.alive:
        return None
    if facts.next_pass_at is not None:
        return max(facts.next_pass_at, facts.world.observed_at)
    poll = float(facts.spec.watch.poll)
    wake = decision.wake_in if decision is not None and decision.wake_in is not None else poll
    return facts.world.observed_at + min(poll, wake)


def journal_of(
    facts: DeploymentFacts, *kinds: str, last: int = 3, since: float = 0.0
) -> tuple[Evidence, ...]:
    """
    Return the newest *last* entries of the journal about *kinds*, from the time *since* on.

    A refusal that the record has too is named by its code only, because the record tells all of it.
    """
    chosen = [entry for entry in facts.journal if entry.kind in kinds and entry.at >= since][-last:]
    refused: dict[Entry, str] = {}
    for refusal in facts.record.refusals:
        # What a refusal answers is the last request before it.
        asked = [e for e in chosen if _may_answer(refusal, e, facts.record)]
        refused |= dict.fromkeys(asked[-1:], f"refused ({refusal.code})" if refusal.code else "refused")
    return tuple(
        Evidence("journal", e.at, f"{e.verb} {_named(e)} ({e.message}): {_result(e, refused)}")
        for e in chosen
    )


def _may_answer(refusal: Refusal, entry: Entry, record: Record) -> bool:
    """Return whether *refusal* may be of this request; its own may be in the journal of another computer."""
    if entry.kind != refusal.kind.value or entry.at > refusal.at:
        return False
    if entry.verb not in {verb.word for verb in MAKING}:
        return False
    if refusal.kind is not Kind.NODE:
        return True
    # A TPU that has been billed was made.
    if any(span.name == entry.name for span in record.spans):
        return False
    numbers = (incarnation_of(word.strip("':,"), {}) for word in refusal.message.split())
    named = next((number for number in numbers if number is not None), None)
    return named in {None, incarnation_of(entry.name, {})}


def _result(entry: Entry, refused: Mapping[Entry, str]) -> str:
    if entry.result == DONE:
        # Google accepts a create, and refuses it when it makes the machine.
        return f"accepted, then {refused[entry]}" if entry in refused else "done"
    return refused.get(entry) or entry.result or "no result known"


def _named(entry: Entry) -> str:
    """Return what the change was about; a digest alone would not say that it is one of code."""
    titles = {kind.value: kind.title for kind in Kind}
    return f"{titles.get(entry.kind, entry.kind)} {entry.name}".rstrip()
