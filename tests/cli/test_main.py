"""Help, version, wrong words, and how little is imported for them."""

import importlib
import json
import os
import pty
import subprocess
import sys

import click
import pytest

from orchestrator import __version__
from orchestrator.cli.main import COMMANDS, ELSEWHERE, GROUPS, HIDDEN, RENAMED, UNLISTED, cli, run
from orchestrator.errors import Interrupted
from tests.cli.cli_kit import ROOT, environment, here

HEAVY = {
    "google", "grpc", "paramiko", "fabric", "jinja2", "pydantic", "rich", "ruamel", "requests", "asyncssh",
    "starlette", "uvicorn", "numpy", "cryptography",
}  # fmt: skip
LIGHT = {
    "orchestrator", "orchestrator.app", "orchestrator.app.context", "orchestrator.app.context.choice",
    "orchestrator.cli", "orchestrator.cli.main", "orchestrator.cli.options", "orchestrator.cli.questions",
    "orchestrator.errors",
}  # fmt: skip


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_almost_nothing(word, tmp_path):
    """The first word of a newcomer is answered at once: this list is the whole of ours."""
    program = (
        "import runpy, sys, json, atexit\n"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))))\n"
        f"sys.argv = ['tpuctl', {word!r}]\n"
        "runpy.run_module('orchestrator', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    # A namespace package of the installation may register `google` itself; its contents would be the cost.
    assert not {m.split(".")[0] for m in modules if "." in m or m != "google"} & HEAVY
    assert {m for m in modules if m.split(".")[0] == "orchestrator"} <= LIGHT


def test_a_command_hardly_looks_for_garbage(tmp_path):
    """Its modules are never garbage; to search them took a fifth of the computing of `plan`."""
    (tmp_path / "tpuctl.yaml").write_text(
        "name: a\ntpu: {type: v5litepod-8, zones: [us-west4-a]}\nvm: none\njob: {command: 'true'}\n"
    )
    program = (
        "import atexit, gc, runpy, sys\n"
        "found = []\n"
        "gc.callbacks.append(lambda phase, _: found.append(phase))\n"
        "atexit.register(lambda: print(f'\\n{found.count(\"start\")} {gc.get_freeze_count()}'))\n"
        "sys.argv = ['tpuctl', 'plan', '--offline', '--cloud', 'gcp']\n"
        "runpy.run_module('orchestrator', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    searches, frozen = map(int, done.stdout.splitlines()[-1].split())
    assert searches < 40
    assert frozen > 50_000


def test_a_second_down_loads_no_ssh():
    """It lists, finds nothing and reaches no machine: paramiko was a quarter of its imports."""
    program = (
        "import orchestrator.app.down, sys; print([m for m in ('paramiko', 'fabric') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package(capsys):
    """People paste it into reports."""
    assert here(capsys, "--version") == (0, f"tpuctl, version {__version__}\n", "")


def walk(command, path=()):
    """Yield every command below *command* with its words."""
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from walk(found, (*path, name))


ALL = dict(walk(cli))


@pytest.mark.parametrize(("words", "command"), ALL.items(), ids=[" ".join(words) for words in ALL])
def test_every_command_explains_itself(words, command, capsys):
    """--help and -h say the same, and the module behind a command has a docstring."""
    code, text, err = here(capsys, *words, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: tpuctl {' '.join(words)}" in text
    assert (command.help or "").strip()
    assert here(capsys, *words, "-h") == (0, text, "")
    assert importlib.import_module(f"orchestrator.cli.commands.{words[0].replace('-', '_')}").__doc__


def test_the_list_of_commands_is_complete(capsys):
    """The front door names each command with its sentence, but for those that are hidden or have a new name."""
    text = here(capsys, "--help")[1]
    for commands in GROUPS.values():
        for name, sentence in commands.items():
            assert f"  {name} " in text
            assert sentence in " ".join(text.split())
    assert not [name for name in (*HIDDEN, *UNLISTED, *RENAMED) if f"\n  {name} " in text]


@pytest.mark.parametrize(("old", "new"), RENAMED.items(), ids=RENAMED)
def test_a_name_of_before_is_the_command_and_names_the_new_one(old, new, capsys):
    """On stderr, in one line; not to a program, and not to a cron job."""
    hint = f"`tpuctl {old}` is now `tpuctl {' '.join(new)}`\n"
    words = [word for word in new if not word.startswith("-")]
    assert here(capsys, old, "--help") == (0, here(capsys, *words, "--help")[1], hint)
    assert here(capsys, "help", old) == here(capsys, *words, "--help")
    for silent in ("--json", "--quiet", "-q"):
        assert here(capsys, old, silent, "--nope")[2].count(hint) == 0
        assert here(capsys, silent, old, "--nope")[2].count(hint) == 0


def test_what_top_took_its_new_name_takes(capsys, tmp_path, monkeypatch):
    """`top --once` is in scripts: it looks once and leaves."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path))
    once = here(capsys, "top", "--once", "--json")
    assert (once[0], once[2]) == (0, "")
    assert once == here(capsys, "status", "--all", "--json")
    assert here(capsys, "status", "--all", "some-name")[0] == 2


def test_a_group_without_its_verb_means_the_plain_one(capsys):
    """`tpuctl config` shows the settings, `tpuctl checkpoints --verify` reads them, as both have always done."""
    file = ("--file", str(ROOT / "examples" / "numpy-lm" / "tpuctl.yaml"))
    assert here(capsys, "config", *file) == here(capsys, "config", "show", *file)
    assert (
        here(capsys, "checkpoints", "--verify", "--nope")[2]
        == here(capsys, "checkpoints", "list", "--verify", "--nope")[2]
    )


def test_quiet_leaves_the_result_and_errors(capsys, tmp_path, monkeypatch):
    """Before the command or after it; the next command of the same process talks again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    loud = here(capsys, "init", "one/a", "--recipe", "numpy-lm")
    assert (loud[0], "  next:  " in loud[2]) == (0, True)
    for words in (("-q", "init", "one/b"), ("init", "--quiet", "one/c")):
        code, _, err = here(capsys, *words, "--recipe", "numpy-lm")
        assert (code, "  next:  " in err, err.count("\n")) == (0, False, 1)
    assert "  next:  " in here(capsys, "-q", "init", "one/a", "--recipe", "numpy-lm")[2]
    assert "  next:  " in here(capsys, "init", "one/d", "--recipe", "numpy-lm")[2]


@pytest.mark.parametrize(
    ("words", "variables", "coloured"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"CLICOLOR_FORCE": "1"}, True),
        ((), {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
        ((), {"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_colour_is_what_flag_and_variables_say(
    words, variables, coloured, before, capsys, tmp_path, monkeypatch
):
    """The flag wins, then https://no-color.org, then FORCE_COLOR and CLICOLOR_FORCE; no terminal reads this."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        # Set, so that monkeypatch puts back what a command has chosen.
        monkeypatch.setenv(name, variables.get(name, ""))
    line = (*words, "status") if before else ("status", *words)
    code, _, err = here(capsys, *line)
    assert (code, "\x1b[" in err) == (2, coloured)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["upp"], "no command 'upp'", "did you mean `tpuctl up`?"),
        (["sttus", "--json"], "no command 'sttus'", "did you mean `tpuctl status`?"),
        (["xyzzy"], "no command 'xyzzy'", "see: tpuctl --help"),
        (["plan", "--foo"], "--foo", "see: tpuctl plan --help"),
        (["plan", "--cloud", "mars"], "mars", "see: tpuctl plan --help"),
        (["exec"], "COMMAND", "see: tpuctl exec --help"),
        (["local", "fault", "tpu.nodes.create"], "FAULTS", "see: tpuctl local fault --help"),
    ],
)
def test_a_wrong_word_is_answered_in_one_way(words, says, hint, capsys):
    """What, what was changed, what next, exit code 2; with --json as a document on stdout."""
    code, out, err = here(capsys, *words)
    assert code == 2
    if "--json" in words:
        found = json.loads(out)
        assert (found["kind"], found["code"], found["hint"]) == ("error", "TPU-101", hint)
        return
    assert out == ""
    assert says in err
    assert f"next:  {hint}" in err
    assert "nothing was changed" in err


def test_the_words_of_other_tools_lead_to_ours(capsys):
    """`destroy`, `ls`, `cp`: each is answered with a command that exists, and none hides one of ours."""
    for ours, others in ELSEWHERE.items():
        for word in others:
            code, _, err = here(capsys, word)
            assert (code, word in COMMANDS) == (2, False)
            assert f"did you mean `tpuctl {ours}`?" in err
        assert ours.startswith("--") or ours.split()[0] in COMMANDS


def test_help_is_a_command_too(capsys):
    """`git help push` is what people type: it shows what --help shows."""
    assert here(capsys, "help") == here(capsys, "--help")
    assert here(capsys, "help", "up") == here(capsys, "up", "--help")
    assert here(capsys, "help", "local", "preempt") == here(capsys, "local", "preempt", "--help")
    code, _, err = here(capsys, "help", "local", "premept")
    assert code == 2
    assert "did you mean" in err
    assert "preempt" in err


@pytest.mark.parametrize("word", ["TPU-300", "tpu-300", "300"])
def test_help_explains_a_code(word, capsys, tmp_path, monkeypatch):
    """Without a network and in any folder, with the links as words."""
    monkeypatch.chdir(tmp_path)
    code, out, err = here(capsys, "help", word)
    assert (code, err) == (0, "")
    assert out.startswith(
        "TPU-300: the zone has no capacity for such a machine now (stockout)\n"
        "Exit code 4; `tpuctl watch` tries other zones, then waits and tries again\n"
    )
    assert "more zones raise the chance" in out
    assert "zones (docs/zones.md)" in out
    assert "TPU-301" not in out
    code, _, err = here(capsys, "help", "TPU-999")
    assert (code, "did you mean" in err, "docs/errors.md" in err) == (2, False, True)


def test_the_help_of_a_code_is_wrapped_between_words(capsys, monkeypatch):
    """On a terminal, of whatever width; its paragraphs stay whole."""
    whole = here(capsys, "help", "TPU-350")[1]
    assert "Waiting helps in one case only" in whole
    for width in (40, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        out = here(capsys, "help", "TPU-350")[1]
        assert max(map(len, out.splitlines())) <= width
        assert out.split() == whole.split()
        assert out.count("\n\n") == whole.count("\n\n")


@pytest.mark.parametrize("width", [80, 90, 100, 110])
def test_no_help_breaks_an_option(width, capsys, monkeypatch):
    """`--delete-data` stays one word at the end of a line."""
    monkeypatch.setenv("COLUMNS", str(width))
    out = here(capsys, "down", "--help")[1]
    assert not [line for line in out.splitlines() if line.endswith("-")]
    assert "without --delete-data." in " ".join(out.split())
    assert out.isascii()


def test_each_error_names_its_help(capsys):
    """As its last line, and with --json as a field; the command that it names is one."""
    err = here(capsys, "upp")[2]
    assert err.splitlines()[-1] == "  more:  tpuctl help TPU-101"
    assert json.loads(here(capsys, "upp", "--json")[1])["help"] == "tpuctl help TPU-101"
    assert here(capsys, "help", "TPU-101")[0] == 0


def test_no_words_at_all_show_the_help(capsys):
    """A bare `tpuctl` is a question."""
    code, out, err = here(capsys)
    assert code == 2
    assert "tpuctl demo" in out + err


def test_a_bug_says_so_and_leaves_its_report_in_a_file(monkeypatch, capsys, tmp_path):
    """No traceback is thrown at people; the file has it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("orchestrator.config.schema.json_schema", lambda: 1 / 0)
    code, out, err = here(capsys, "config", "schema")
    assert (code, out) == (1, "")
    assert "this is a bug in tpuctl: ZeroDivisionError" in err
    (report,) = tmp_path.glob("tpuctl-bug-*.txt")
    assert str(report) in err.replace("\n", "")
    assert "Traceback" in report.read_text()


def test_what_follows_two_dashes_is_for_another_program(capsys):
    """`exec -- job --json` does not ask tpuctl for JSON."""
    from orchestrator.cli.console import wants_json

    assert wants_json(["exec", "--json", "--", "x"])
    assert not wants_json(["exec", "--", "x", "--json"])


def test_every_command_answers_programs_too():
    """`demo` shows commands that do, `schema` prints nothing but JSON, `completion` a script, `help` text."""
    ends = {" ".join(words): one for words, one in ALL.items() if not isinstance(one, click.Group)}
    without = [name for name, one in ends.items() if not any("--json" in p.opts for p in one.params)]
    assert without == ["demo", "config schema", "help", "completion"]


def test_a_flag_is_of_one_kind_everywhere():
    """Whether it takes a value, and of what type, is the same in each command that has it."""
    kinds = {}
    for words, one in ALL.items():
        for flag in (p for p in one.params if isinstance(p, click.Option)):
            for spelling in flag.opts:
                if (spelling, words) == ("--compare", ("selftest",)):
                    continue  # A recording; for a rehearsal there is nothing to choose.
                # Of a path, file or folder is in its metavar.
                named = "path" if isinstance(flag.type, click.Path) else flag.type.name
                kind = "switch" if flag.is_flag else named
                kinds.setdefault(spelling, {}).setdefault(kind, []).append(" ".join(words))
    assert {spelling: found for spelling, found in kinds.items() if len(found) > 1} == {}


def test_a_name_is_completed_wherever_it_is_asked_for():
    """A command that takes the NAME of a deployment knows those of this computer."""
    # A new name, a node of the local cloud, a secret, a TPU or bucket that is not ours yet.
    others = {"init", "local preempt", "secret set", "adopt"}
    blind = {
        " ".join(words)
        for words, one in ALL.items()
        for asked in one.params
        if asked.name == "name" and asked._custom_shell_complete is None
    }
    assert blind == others


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_shows_no_marks_of_its_source(words, capsys):
    """The mark that keeps lines as they are is click's to read, not a person's."""
    text = here(capsys, *words, "--help")[1]
    assert "\\b" not in text
    assert "\b" not in text


def test_the_first_page_keeps_its_lines_apart(capsys):
    """Newcomers read two commands there, one a line."""
    _, out, _ = here(capsys, "--help")
    assert "tpuctl demo\n" in out
    assert "\\b" not in out


def test_the_sentence_of_a_command_is_never_cut_off(capsys):
    """Groups list their commands with whole sentences at 80 columns."""
    for group in ("secret", "notify", "local"):
        assert "..." not in here(capsys, group, "--help")[1].replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("words", "stream"),
    [
        (["--help"], "stdout"),
        (["up", "--help"], "stdout"),
        (["config", "schema"], "stdout"),
        (["local", "status"], "stdout"),
        (["local", "status", "--json"], "stdout"),
        (
            ["check", "--file", str(ROOT / "examples" / "numpy-lm" / "tpuctl.yaml")],
            "stdout",
        ),  # rich writes it
        (["up", "--nope"], "stderr"),
    ],
)
def test_a_reader_who_has_gone_is_no_failure_of_ours(words, stream, tmp_path):
    """As in `tpuctl ... | head -1`: the status of a program that SIGPIPE ended, and not a word about it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *words], cwd=tmp_path, check=False, timeout=120,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer},
            env=environment(TPUCTL_LOCAL_DIR=str(tmp_path / "cloud")),
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (141, b"", b"")


def test_options_of_all_commands_may_stand_before_the_command(capsys, tmp_path, monkeypatch):
    """What stands after the command wins; the environment counts when neither is there."""
    monkeypatch.chdir(tmp_path)
    code, out, _ = here(capsys, "--json", "status")
    assert (code, json.loads(out)["code"]) == (2, "TPU-111")
    for words in (
        ("--file", "a.yaml", "config"), ("config", "--file", "a.yaml"),
        ("--file", "b.yaml", "config", "--file", "a.yaml"),
    ):  # fmt: skip
        code, _, err = here(capsys, *words)
        assert (code, "TPU-112" in err, "a.yaml" in err) == (2, True, True)
    monkeypatch.setenv("TPUCTL_CLOUD", "nowhere")
    assert "'nowhere'" in here(capsys, "status")[2]
    assert "TPU-111" in here(capsys, "--cloud", "local", "status")[2]


def test_an_option_before_a_command_that_has_none_is_refused(capsys):
    """It would otherwise be dropped, and the command run elsewhere than asked."""
    code, _, err = here(capsys, "--cloud", "gcp", "demo")
    assert code == 2
    assert "`tpuctl demo` has no option --cloud" in err
    assert "tpuctl demo --help" in err


def test_a_command_shows_its_own_options_first(capsys):
    """Those of all commands come in a section of their own."""
    out = here(capsys, "logs", "--help")[1]
    assert out.index("--follow") < out.index("Common options:") < out.index("--file")


@pytest.mark.parametrize("ends", [click.Abort(), Interrupted("nothing was changed", "tpuctl up")], ids=repr)
def test_what_is_said_after_ctrl_c_begins_a_line(ends, monkeypatch):
    """A terminal shows `^C` where the cursor was."""

    def end(**_):
        raise ends

    monkeypatch.setattr(cli, "main", end)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert run(["status"]) == 130
        text = ""
        while "interrupted" not in text:
            text += os.read(ours, 4096).decode()
        assert text.startswith("\r\n")
    os.close(ours)
