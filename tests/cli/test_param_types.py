"""Types of options that click does not have: which texts they take, and what they say to others."""

import click
import pytest

from orchestrator.advice.rehearsal.run import Moment, Trigger
from orchestrator.cli.param_types import WORKER, Parsed, Time
from tests.cli.cli_kit import here
from tests.cli.reference import commands

SECONDS = Time(bare="s")
OR_NONE = Time(bare="s", zero=True)
MINUTES = Time(bare="m", between=("5m", "4h"))


@pytest.mark.parametrize(
    ("kind", "text", "seconds"),
    [
        (Time(), "30s", 30.0),
        (Time(), "1.5h", 5400.0),
        (Time(), " 2d ", 172_800.0),
        (SECONDS, "600", 600.0),
        (SECONDS, "0.5", 0.5),
        (SECONDS, "2m", 120.0),
        (OR_NONE, "0", 0.0),
        (OR_NONE, "0.0s", 0.0),
        (MINUTES, "90", 5400.0),
        (MINUTES, "4h", 14_400.0),
    ],
)
def test_a_time_is_written_with_a_unit_or_where_it_says_so_without(kind, text, seconds):
    """The unit of a bare number is that of the option."""
    assert kind.convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Time(), "30"),
        (Time(), "0s"),
        (Time(), "soon"),
        (Time(), ""),
        (SECONDS, "0"),
        (SECONDS, "-1"),
        (SECONDS, "nan"),
        (SECONDS, "inf"),
        (OR_NONE, "-0"),
        (MINUTES, "3"),
        (MINUTES, "5h"),
    ],
)
def test_what_is_no_such_time_is_refused(kind, text):
    """The error repeats the text and says what to write."""
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert caught.value.message.startswith(f"{text!r}: write a")


def test_a_value_that_is_read_already_stays_the_same():
    """Click converts defaults, and values that it has converted."""
    assert Time().convert(30.0, None, None) == 30.0
    assert WORKER.convert(None, None, None) is None
    assert (WORKER.convert("7", None, None), WORKER.convert("all", None, None)) == (7, None)
    moment = Parsed("moment", Moment.parse).convert("time:90s", None, None)
    assert moment == Moment(Trigger.TIME, 90.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("logs --since soon", "'--since': 'soon': write a positive time with a unit: 15s, 60m, 12h or 7d"),
        ("logs --worker x", "'--worker': 'x': no number of a worker; write a number, or all"),
        ("fleet submit {job} --takes 30", "'--takes': '30': write a positive time with a unit"),
        ("exec --timeout never -- ls", "'--timeout': 'never': write a positive time with a unit"),
        ("selftest --ttl 5h", "'--ttl': '5h': write a time from 5m to 4h"),
        ("local start --notice -1", "'--notice': '-1': write a positive time with a unit"),
        ("rehearse --at tomorrow", "'--at': 'tomorrow': write step:100, checkpoint:2, time:90s or log:REGEX"),
        ("rehearse --at checkpoint:0", "'--at': 'checkpoint:0': checkpoint: needs a whole number from 1"),
    ],
)
def test_the_error_names_the_option_the_text_and_what_to_write(line, said, capsys, tmp_path, monkeypatch):
    """Nothing was looked at yet, and the exit code is that of a wrong flag."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").touch()
    code, _, err = here(capsys, *line.format(job="job.yaml").split())
    assert code == 2
    assert said in err
    assert "nothing was changed" in err


def test_every_option_that_takes_a_time_has_this_type():
    """A new one cannot read times in a way of its own."""
    options = [(words, param) for words, command in commands() for param in command.params]
    named = {
        (words[-1], one.opts[-1]) for words, one in options if one.metavar in {"TIME", "SECONDS", "MINUTES"}
    }
    typed = {(words[-1], one.opts[-1]) for words, one in options if isinstance(one.type, Time)}
    assert named == typed
    assert len(typed) >= 8
