"""What a machine installed, compiled and downloaded comes back on the next one, and only where it fits."""

import json
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.caches import keeper
from orchestrator.agent.caches.cache_manifest import RETAINED, CacheManifest, Piece, manifest_name, parse
from orchestrator.agent.caches.pieces import files_below, pack
from orchestrator.agent.caches.places import Cache
from orchestrator.agent.caches.warm_start import largest_first
from orchestrator.agent.context import AgentContext
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import Phase
from orchestrator.emulator.machines.machine_python import base_interpreter, install_python, programs
from orchestrator.scripts.uv_program import shared_folder
from tests.agent.agent_lab import AgentLab, AgentMachine
from tests.agent.test_venv import package

SETUP = "python3 -m pip install -q --no-index --find-links {wheels} first_package"
WORKS = f"python3 -c 'import first_package' && exec {sys.executable} train.py"
KILLING = (sys.executable, "-m", "tests.agent.killing_agent")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with one package."""
    package(tmp_path / "wheels", "first_package")
    return tmp_path / "wheels"


def warm(
    lab: AgentLab, wheels: Path, incarnation: int, *, empty: bool = True, **changes: object
) -> AgentMachine:
    """Make a machine that keeps what it installs: the same paths as the one before, and an *empty* disk."""
    files = lab.folder / "files"
    if empty:
        shutil.rmtree(files, ignore_errors=True)
        shutil.rmtree(lab.folder / "m", ignore_errors=True)
    install_python(files, base_interpreter(), shared_folder() / "pip")
    more = {
        "INCARNATION": incarnation, "WARM_START": 1, "SETUP": SETUP.format(wheels=wheels), "COMMAND": WORKS,
        "_PATH": f"{programs(files)}:/usr/bin:/bin", "_STEPS": 100_000,
    }  # fmt: skip
    return lab.machine("m", **{**more, **changes})


def retained(lab: AgentLab, cache: str = "environment") -> list[str]:
    """Return the manifests of a cache."""
    return lab.names(f"caches/{cache}/")


def trained(machine: AgentMachine) -> None:
    """Wait until the job makes steps, then take the machine away."""
    machine.until(lambda: "first_step" in machine.heartbeat().get("timings", {}), "a step")
    machine.kill_all()


def first_life(lab: AgentLab, wheels: Path, **changes: object) -> None:
    """Let a machine install, train and keep what it installed."""
    machine = warm(lab, wheels, 1, **changes).start()
    machine.until(lambda: retained(lab), "the packages are in the bucket")
    machine.kill_all()


# What comes back.


def test_packages_come_back_before_the_setup(lab: AgentLab, wheels: Path) -> None:
    """The next machine finds them installed: its setup succeeds where the package cannot be had any more."""
    first_life(lab, wheels)
    shutil.rmtree(wheels)

    machine = warm(lab, wheels, 2).start()
    trained(machine)
    times = machine.heartbeat()["timings"]
    assert times["fetched"] <= times["unpack_began"] <= times["unpacked"] <= times["setup_began"]
    assert "Python packages of an earlier machine are back" in lab.log(2)


def test_without_warm_start_nothing_is_stored(lab: AgentLab, wheels: Path) -> None:
    """A user can turn it off: nothing is read or written."""
    machine = warm(lab, wheels, 1, WARM_START=0).start()
    machine.until(lambda: machine.heartbeat().get("committed_step"), "a save")
    machine.kill_all()
    assert lab.names("caches/") == []


def test_another_setup_python_or_image_has_packages_of_its_own(lab: AgentLab, wheels: Path) -> None:
    """The key changes with the command; a setup that finds nothing installed has to install."""
    first_life(lab, wheels)
    machine = warm(lab, wheels, 2, SETUP=f"true; {SETUP.format(wheels=wheels)}").start()
    machine.until(lambda: len(retained(lab)) == 2, "another key")
    assert "are back" not in lab.log(2)


def test_programs_that_were_compiled_come_back_and_new_ones_are_counted(lab: AgentLab, wheels: Path) -> None:
    """JAX and PyTorch/XLA get a folder that is kept, unless the user has named one."""
    folders = "$JAX_COMPILATION_CACHE_DIR $XLA_PERSISTENT_CACHE_PATH"
    compiles = f"for f in {folders}; do mkdir -p $f; touch $f/{{name}}; done; "
    first = warm(
        lab, wheels, 1, COMMAND=compiles.format(name="a-cache") + WORKS, _XLA_PERSISTENT_CACHE_PATH=""
    ).start()
    first.until(lambda: retained(lab, "compiled"), "the compiled programs are in the bucket")
    first.kill_all()

    machine = warm(lab, wheels, 2, COMMAND=compiles.format(name="b-cache") + WORKS).start()
    machine.until(lambda: machine.heartbeat().get("xla_programs_compiled"), "counted")
    heartbeat = machine.heartbeat()
    assert (heartbeat["xla_programs_restored"], heartbeat["xla_programs_compiled"]) == (1, 2)


def test_a_folder_of_the_user_grows_and_comes_back(lab: AgentLab, wheels: Path) -> None:
    """Only what is new is packed again; logins and links out of it stay where they are."""
    hub = lab.folder / "hub"
    makes = (
        f"mkdir -p {hub}; cd {hub}; echo model > a; echo hf_x > token; ln -s /etc/passwd out; ln -s a link"
    )
    more = {"SETUP": makes, "CACHES": json.dumps([str(hub)]), "COMMAND": f"exec {sys.executable} train.py"}
    machine = warm(lab, wheels, 1, **more).start()
    (name,) = found(machine, lambda: [n for n in lab.names("caches/folder-") if n.endswith(".json")])
    # On a busy computer the link may be younger than the file by the time after which a file counts as finished.
    machine.until(lambda: sum(one.files for one in parse(lab.read(name), name).pieces) == 2, "file and link")
    before = parse(lab.read(name), name).pieces
    (hub / "b").write_text("more")
    machine.until(lambda: len(parse(lab.read(name), name).pieces) > len(before), "the new file")
    assert parse(lab.read(name), name).pieces[: len(before)] == before
    machine.kill_all()
    shutil.rmtree(hub)

    machine = warm(lab, wheels, 2, **{**more, "SETUP": ""}).start()
    machine.until(lambda: machine.heartbeat().get("phase") == "run", "the start")
    assert sorted(path.name for path in hub.iterdir()) == ["a", "b", "link"]


def found(machine: AgentMachine, look_: Callable[[], list[str]]) -> list[str]:
    """Wait until there is something, and return it."""
    machine.until(look_, "it is there")
    return look_()


# What is not believed.

OUT = Piece("0" * 64, 1, 1, 1, "gz")
LIES: dict[str, Callable[[CacheManifest], CacheManifest]] = {
    "another image": lambda m: replace(m, facts={**m.facts, "image": "other"}),
    "another path": lambda m: replace(m, places={name: f"/other{path}" for name, path in m.places.items()}),
    "other folders": lambda m: replace(m, places={"etc": "/etc"}),
    "a piece that is gone": lambda m: replace(m, pieces=(*m.pieces, OUT)),
    "less than it says": lambda m: replace(m, pieces=tuple(replace(p, files=p.files + 1) for p in m.pieces)),
    "more than it says": lambda m: replace(m, pieces=tuple(replace(p, unpacked=10) for p in m.pieces)),
    "more than a disk": lambda m: replace(m, pieces=tuple(replace(p, unpacked=1 << 62) for p in m.pieces)),
    "a removed file out of its place": lambda m: replace(m, removed=("venvs/../../x",)),
    "a later schema": lambda m: replace(m, schema=2),
}


def context_of(lab: AgentLab, name: str, *, moves: bool) -> AgentContext:
    """Return the context of an agent whose machine has folders in places of its own, as on a local cloud."""
    found = lab.machine(name).context()
    found.settings.layout.make()
    found.caches.moves = moves
    return found


def own_cache(folder: Path) -> Cache:
    """Return a cache of one folder."""
    return Cache("environment", "Python packages", "0" * 32, {"venvs": folder}, {}, inside=False, grows=False)


@pytest.mark.parametrize("notice", [True, False])
def test_packing_that_a_notice_interrupts_is_no_warning(
    lab: AgentLab, monkeypatch: pytest.MonkeyPatch, notice: bool
) -> None:
    """Nobody can do anything about it, and the report says already that the machine is being taken away."""
    machine, folder = context_of(lab, "m", moves=False), lab.folder / "venvs"
    folder.mkdir()
    (folder / "a").write_text("a")
    machine.caches.wanted = [own_cache(folder)]
    machine.heartbeat.set(phase=Phase.RUN, notice=notice)
    machine.heartbeat.time("spawned")
    machine.heartbeat.time("first_step")
    if not notice:
        monkeypatch.setattr(keeper, "MAX_BYTES", 0)
    machine.keeper.keep()
    assert ("keep Python packages: " in machine.heartbeat.body()["message"]) is not notice
    assert retained(lab) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_cache_that_does_not_fit_or_is_altered_is_not_restored(lab: AgentLab, lie: str) -> None:
    """Nothing of it is on the disk, the reason is said, and what this machine makes takes its place."""
    one, two = (context_of(lab, name, moves=False) for name in ("one", "two"))
    folder = lab.folder / "venvs"
    folder.mkdir()
    (folder / "a").write_text("a" * 100)
    assert one.keeper.store(own_cache(folder)) == ""
    shutil.rmtree(folder)
    (name,) = retained(lab)
    lab.put(name, LIES[lie](parse(lab.read(name), name)).text().encode())

    text = two.caches.restore_one(own_cache(folder)) or ""
    assert "cannot be used, and are created again" in text
    assert not folder.exists()
    assert not list(lab.folder.rglob(".tpuctl-*"))
    folder.mkdir()
    (folder / "b").write_text("b")
    assert two.keeper.store(own_cache(folder)) == ""
    two.keeper.store(own_cache(folder))
    assert [piece.unpacked for piece in parse(lab.read(name), name).pieces] == [1]


def test_a_torn_piece_is_not_unpacked_and_all_is_installed(lab: AgentLab, wheels: Path) -> None:
    """One changed byte of it is found before anything of it is on the disk; the log says once why."""
    first_life(lab, wheels)
    (piece,) = lab.names("caches/pieces/")
    data = bytearray(lab.read(piece))
    data[len(data) // 2] ^= 1
    lab.put(piece, bytes(data))
    machine = warm(lab, wheels, 2).start()
    trained(machine)
    assert lab.log(2).count("another sha256 than its name") == 1


def test_the_largest_piece_is_unpacked_first() -> None:
    """Otherwise one process may unpack a library of hundreds of megabytes while all others have ended."""
    pieces = [Piece(f"{size:064x}", size, size, 1, "zst") for size in (20, 500, 64, 500)]
    assert [number for number, _ in largest_first(pieces)] == [1, 3, 2, 0]


def test_packages_with_which_the_setup_fails_are_removed_and_it_runs_again(
    lab: AgentLab, wheels: Path
) -> None:
    """What an earlier machine left is never why a deployment ends: not one attempt fails."""
    once = lab.folder / "fails-once"
    setup = f"{SETUP.format(wheels=wheels)} && if test -e {once}; then rm {once}; exit 3; fi"
    first_life(lab, wheels, SETUP=setup)
    once.touch()
    machine = warm(lab, wheels, 2, SETUP=setup).start()
    trained(machine)
    assert lab.log(2).count("setup runs again") == 1
    assert len(lab.attempts(2)) == 1


@pytest.mark.parametrize("program", [False, True])
def test_on_a_local_cloud_paths_are_changed_and_a_program_that_holds_one_is_not_used(
    lab: AgentLab, program: bool
) -> None:
    """There each machine has a root of its own; a real one has the same everywhere, or the packages are left."""
    one, two, real = (context_of(lab, name, moves=name != "real") for name in ("one", "two", "real"))
    folder = one.settings.layout.root / "venvs"
    folder.mkdir()
    (folder / "pip").write_text(f"#!{folder}/bin/python\n")
    (folder / "lib.so").write_bytes(b"\x7fELF\0" + (bytes(folder) if program else b""))
    (folder / "python").symlink_to(folder / "bin/python")
    assert one.keeper.store(own_cache(folder)) == ""

    target = two.settings.layout.root / "venvs"
    assert ("are back" in (two.caches.restore_one(own_cache(target)) or "")) is not program
    if not program:
        assert (target / "pip").read_text() == f"#!{target}/bin/python\n"
        assert (target / "python").readlink() == target / "bin/python"
    assert "another place" in (real.caches.restore_one(own_cache(real.settings.layout.root / "venvs")) or "")


def test_a_cache_that_is_too_large_is_not_stored_and_the_report_says_it(
    lab: AgentLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text names what there is and what may be; nothing is sent."""
    monkeypatch.setattr(keeper, "MAX_BYTES", 10)
    context = context_of(lab, "one", moves=False)
    (context.settings.layout.root / "hub").mkdir()
    (context.settings.layout.root / "hub/a").write_bytes(b"x" * 11)
    text = context.keeper.store(own_cache(context.settings.layout.root / "hub"))
    assert text == "0.0 GB in 1 files; at most 0 GB in 500,000 are kept"
    assert lab.names("caches/") == []


# Whatever is killed.


def test_a_machine_that_is_lost_while_it_packs_or_sends_leaves_nothing_that_counts(
    lab: AgentLab, wheels: Path
) -> None:
    """Killed before the manifest, which comes last: the next machine installs, and keeps it again."""
    for incarnation, line in (
        (1, "before POST caches/pieces*"),
        (2, "after POST caches/pieces*"),
        (3, "before POST caches/environment*"),
    ):
        machine = warm(lab, wheels, incarnation)
        killed_at(lab, machine, line)
        assert retained(lab) == []
        machine.kill_all()
    machine = warm(lab, wheels, 4).start()
    machine.until(lambda: retained(lab), "the packages are in the bucket at last")
    assert "are back" not in lab.log(4)


def test_a_machine_that_is_lost_while_packages_come_back_goes_on_with_whole_ones(
    lab: AgentLab, wheels: Path
) -> None:
    """Killed before, while and after they are moved to their place; the same disk goes on."""
    first_life(lab, wheels)
    shutil.rmtree(wheels)
    lines = (
        "after GET caches/pieces*", "after replace state/cache-environment.json 1", "before move 1",
        "after move 1", "before replace state/cache-environment.json 2",
    )  # fmt: skip
    for incarnation, line in enumerate(lines, 2):
        machine = warm(lab, wheels, incarnation)
        killed_at(lab, machine, line)
        machine.env.pop("KILL_AT")
        trained(machine.start())
        assert not list((lab.folder / "files").rglob(".tpuctl-*"))


def killed_at(lab: AgentLab, machine: AgentMachine, line: str) -> None:
    """Start the agent, and wait until SIGKILL has met it where a step begins with *line*."""
    machine.env |= {
        "KILL_TRACE": str(lab.folder / f"trace-{line[:40].replace('/', '-')}"),
        "KILL_AT": line,
        "KILL_VICTIM": "agent",
    }
    assert machine.start(KILLING).wait() == -9


def test_two_that_keep_at_once_do_not_tear_each_other(lab: AgentLab, wheels: Path) -> None:
    """The second meets the first one's manifest, believes neither half, and what stands is whole."""
    first = threading.Event()

    def meanwhile(request):
        if (
            request.method == "POST"
            and "caches/environment" in request.query.get("name", "")
            and not first.is_set()
        ):
            first.set()
            lab.put(request.query["name"], b'{"schema": 1, "written": "by another machine"}')

    lab.fault = meanwhile
    machine = warm(lab, wheels, 1).start()
    machine.until(
        lambda: first.is_set() and retained(lab) and b"pieces" in lab.read(retained(lab)[0]), "a whole one"
    )
    machine.kill_all()
    shutil.rmtree(wheels)
    trained(warm(lab, wheels, 2).start())


# What it costs.


def test_old_keys_go_and_what_was_just_sent_stays(lab: AgentLab, wheels: Path) -> None:
    """Two keys of a cache stay; a piece that another machine has just sent is not taken from it."""
    for number in range(RETAINED + 2):
        lab.put(
            manifest_name("environment", f"{number:032x}"),
            CacheManifest(f"{number:032x}", {}, {}, ()).text().encode(),
        )
    lab.put(f"caches/pieces/{'1' * 64}.tar.gz", b"just sent")
    machine = warm(lab, wheels, 1).start()
    machine.until(lambda: len(retained(lab)) == RETAINED, "two keys")
    assert f"caches/pieces/{'1' * 64}.tar.gz" in lab.names("caches/pieces/")


def test_a_last_second_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    """Packing ends at the next file when the machine is about to go."""
    (tmp_path / "a").write_text("x")

    def gone() -> None:
        raise AgentError("the machine is about to go")

    with pytest.raises(AgentError):
        pack(list(files_below({"folder": tmp_path}).values()), tmp_path.with_suffix(".tar"), [], gone)
