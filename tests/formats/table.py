"""
The table of docs/formats.md, made by a run: each layout is recognised, committed, torn, restored to an empty disk.

`python -m tests.formats.table` writes it; a test holds the page against a run of its own.
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.agreement.attempts import next_attempt
from orchestrator.agent.context import AgentContext
from orchestrator.clock import VirtualClock
from orchestrator.domain.ports import StoredObject
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from tests.agent.agent_lab import BUCKET, AgentLab, running_lab
from tests.formats.layouts import LAYOUTS, Save, SaveLayout, steps

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
BEGIN, END = "<!-- table: begin (python -m tests.formats.table) -->", "<!-- table: end -->"
PARTS = (0.1, 0.5, 0.999)


@dataclass(frozen=True)
class FormatRow:
    """Hold what a run found of one layout, in words."""

    layout: str
    format: str
    seen: str
    committed: str
    torn: str
    restored: str
    bucket_seen: str
    bucket_torn: str
    bucket_restored: str


class FormatLab:
    """Hold a bucket and its agents; every layout gets machines and a bucket folder of its own."""

    def __init__(self, agents: AgentLab) -> None:
        self.agents = agents
        self.count = 0
        self.clock = VirtualClock()

    def context(self, *, in_bucket: bool = False, incarnation: int = 1) -> AgentContext:
        """Return the context of an agent on a new machine with an empty disk."""
        self.count += 1
        folder = {"CHECKPOINT_DIR": f"gs://{BUCKET}/checkpoints"} if in_bucket else {}
        machine = self.agents.machine(
            f"m{self.count}", CHECKPOINT_FORMAT="auto", INCARNATION=incarnation, **folder
        )
        return machine.context(self.clock)

    def clear(self) -> None:
        """Empty the bucket."""
        with self.agents.storage.lock:
            for one in list(self.agents.storage.objects.all()):
                if one.name.startswith(("checkpoints/", ".tpuctl/")):
                    self.agents.storage.objects.delete(BUCKET, one.name, None, Preconditions())


def put(root: Path, saved: Save) -> None:
    """Write a save's files."""
    for name, data in saved:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def row_of(layout: SaveLayout, lab: FormatLab) -> FormatRow:
    """Run one layout. Raises AssertionError where it is not as it must be."""
    lab.clear()
    seen, committed, restored = _local(layout, lab)
    lab.clear()
    torn = _torn(layout, lab)
    if layout.bucket:
        found = (layout.bucket,) * 3
    else:
        lab.clear()
        found = _in_bucket(layout, lab)
    return FormatRow(layout.name, layout.format or "-", seen, committed, torn, restored, *found)


def _local(layout: SaveLayout, lab: FormatLab) -> tuple[str, str, str]:
    """Save twice, commit each, and restore the newest to an empty disk."""
    context = lab.context()
    context.committer.begin(1, None)
    root = context.local.folder
    for saved in steps(layout):
        put(root, saved)
        done = context.committer.commit()
        assert done == layout.resumable, (layout.name, context.local.checkpoints())
        assert not context.committer.commit(), "the same bytes are not committed twice"
    held = {one.name: one for one in context.local.folder.rglob("*") if one.is_file()}
    if not layout.resumable:
        states = {one.state.value for one in context.local.checkpoints()}
        assert states == {"not resumable"}, states
        return "yes: not resumable", "no: not resumable", "not committed"
    assert context.format.chosen == layout.format, context.format.chosen
    newest = context.checkpoints.newest()
    assert newest is not None
    assert context.heartbeat.get("format") == layout.format
    if layout.tells:
        assert newest.step == 40, newest
    else:
        assert not context.checkpoints.proven(newest.step, newest.incarnation), "a count proves no target"
    other = lab.context(incarnation=2)
    attempt = next_attempt(None, newest, "test", 0, counted=False)
    back = other.restorer.restore(attempt)
    assert back.path, layout.name
    assert Path(back.path).exists() or layout.format == "tf", back.path
    _same(other.local.folder, dict(layout.write(40)))
    other.committer.begin(1, newest.step)
    assert not other.committer.commit(), "what was restored is not committed again"
    assert held
    number = f"step {newest.step}" if layout.tells else "counted"
    return "yes", f"yes, {number}", "yes"


def _same(root: Path, saved: dict[str, bytes]) -> None:
    """Ask for every file of the save, byte for byte; what a framework needs beside them may be there too."""
    for name, data in saved.items():
        assert (root / name).read_bytes() == data or name in ("checkpoint", "last.json"), f"{name} differs"


def _torn(layout: SaveLayout, lab: FormatLab) -> str:
    """Commit an older save, then write a newer one as kills may leave it, in many ways; none is committed."""
    cuts = 0
    for remaining in _remains(layout):
        context = lab.context()
        context.committer.begin(1, None)
        put(context.local.folder, layout.write(20))
        context.committer.commit()
        before = context.checkpoints.newest()
        put(context.local.folder, remaining)
        context.local.rest()
        context.committer.commit()
        after = context.checkpoints.newest()
        assert after == before, (layout.name, [name for name, _ in remaining], after)
        if before is not None:
            attempt = next_attempt(None, before, "test", 0, counted=False)
            context.restorer.restore(attempt)
            _same(context.local.folder, dict(layout.write(20)))
        lab.clear()
        shutil.rmtree(context.local.folder)
        cuts += 1
    return f"yes, {cuts} cuts"


def _remains(layout: SaveLayout) -> list[Save]:
    """Return what kills leave of the save of step 40: fewer files, or one that is cut."""
    saved = layout.write(40)
    counts = range(1, len(saved)) if not layout.in_place and not layout.copies else ()
    found = [saved[:count] for count in counts]
    for number, (name, data) in enumerate(saved):
        for part in PARTS if layout.proves else ():
            cut = data[: int(len(data) * part)]
            if cut != data and _tells_when_cut(layout, name):
                found.append([*saved[:number], (name, cut)])
    return found


def _tells_when_cut(layout: SaveLayout, name: str) -> bool:
    """Leave out files whose order of writing proves them, and fairseq's copy, which it repairs."""
    if name == "checkpoint_last.pt":
        return False
    return layout.format not in ("orbax", "tf") or name.endswith((".index",))


class _Store:
    """Let the controller's judge read the lab's bucket."""

    def __init__(self, agents: AgentLab) -> None:
        self.agents = agents

    def list(self, prefix: str) -> list[StoredObject]:
        return [self._object(name) for name in self.agents.names(prefix)]

    def read(self, name: str, limit: int | None = None) -> StoredObject | None:
        return self._object(name) if name in self.agents.names(name) else None

    def _object(self, name: str) -> StoredObject:
        data = self.agents.read(name)
        return StoredObject(name=name, data=data, generation=1, size=len(data), updated=0.0)


def _in_bucket(layout: SaveLayout, lab: FormatLab) -> tuple[str, str, str]:
    """Write two saves straight to the bucket, the second one object by object."""
    context = lab.context(in_bucket=True)
    for name, data in layout.write(20):
        lab.agents.put(f"checkpoints/{name}", data)
    first = context.checkpoints.newest()
    assert first is not None, layout.name
    assert context.format.chosen == layout.format
    store = _Store(lab.agents)
    saved = layout.write(40)
    for name, data in saved[:-1]:
        lab.agents.put(f"checkpoints/{name}", data)
        if not layout.in_place and not _single(layout):
            now = context.checkpoints.newest()
            assert now is not None
            assert now.step == 20, (layout.name, name, now)
            assert _second(store) == 20, (layout.name, name)
    lab.agents.put(f"checkpoints/{saved[-1][0]}", saved[-1][1])
    newest = context.checkpoints.newest()
    assert newest is not None
    if layout.in_place and layout.format in ("files", "orbax"):
        assert newest.step == _second(store) == 0
        seen = "yes, step not known"
    else:
        assert newest.step == _second(store) == 40, (newest, _second(store))
        seen = "yes, step 40"
    path = context.checkpoints.path_of(newest.step)
    assert path.startswith(f"gs://{BUCKET}/checkpoints/"), path
    whole = len(saved) == 1 or layout.in_place
    return seen, "objects are whole" if whole else "yes", path.rsplit("/checkpoints/", 1)[-1]


def _single(layout: SaveLayout) -> bool:
    return len(layout.write(1)) == 1 or layout.format == "files"


def _second(store: _Store) -> int | None:
    """Return the newest complete step as the controller judges."""
    found = read_checkpoints(store, CheckpointSpec(format="auto", dir="bucket"))  # type: ignore[arg-type]
    return next((one.step for one in found if one.complete), None)


def rows() -> list[FormatRow]:
    """Run every layout."""
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder)) as agents:
        lab = FormatLab(agents)
        return [row_of(layout, lab) for layout in LAYOUTS]


def text_of(found: list[FormatRow]) -> str:
    """Return the table in Markdown."""
    head = (
        "| layout | `auto` calls it | seen | committed | torn one refused | restored "
        "| bucket: seen | bucket: torn one refused | bucket: `TPUCTL_RESUME` ends with |"
    )
    lines = [head, "|" + " --- |" * 9]
    for row in found:
        cells = (
            row.layout, f"`{row.format}`", row.seen, row.committed, row.torn, row.restored,
            row.bucket_seen, row.bucket_torn, row.bucket_restored,
        )  # fmt: skip
        assert all(cells), row
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def in_page(table: str, page: str) -> str:
    """Return the page with that table in it."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(in_page(text_of(rows()), PAGE.read_text()))
    sys.stdout.write(f"{PAGE} is written\n")
