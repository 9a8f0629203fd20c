"""Step and loss from the output of training programs, and what hostile output costs."""

import random
import time
from itertools import pairwise

import pytest

from orchestrator.contract.printed.choose import PRESETS, Output, Printed
from orchestrator.contract.printed.stream import BACKLOG, Stream, plain
from tests.agent.printed_lines import SAMPLES, Sample, bar


def after(text: str | bytes, wanted: str = "auto") -> Printed:
    """Return what is known after a text."""
    stream, output = Stream(), Output(wanted)
    stream.feed(text.encode() if isinstance(text, str) else text)
    output.read(stream.lines(last=True))
    return output.now()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.program}-{s.reader}")
def test_each_program_is_understood(sample: Sample) -> None:
    """Step, loss and the last step, by the reader that is meant for it."""
    found = after(sample.text)

    assert (found.source, found.step, found.loss) == (sample.reader, sample.step, sample.loss)
    assert found.total == sample.total
    assert found.source in PRESETS


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.program}-{s.reader}")
def test_pieces_of_any_size_say_the_same(sample: Sample) -> None:
    """Where the pipe cuts the output does not matter."""
    data, stream, output, chance = sample.text.encode(), Stream(), Output(), random.Random(5)
    cuts = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(30))})
    for begin, end in pairwise(cuts):
        stream.feed(data[begin:end])
        output.read(stream.lines())
    output.read(stream.lines(last=True))

    assert (output.now().step, output.now().loss) == (sample.step, sample.loss)


@pytest.mark.parametrize(
    "text",
    [
        "max_steps: 1000\nsteps_per_epoch 10\n",
        "Step 1/5: Installing the requirements\n",
        "step time 0.5 loss scale 65536\n",
        "loss_scale=64 step=4\n",
        "global_step/sec: 12.1\n",
        "eval: step 3 loss 2.5\n",
        "[val] step=3, loss=2.5\n",
        "step 3 val_loss 2.5\n",
        "step 3 eval/loss: 2.5\n",
        bar("Downloading data", 10, 20),
        bar("Evaluating", 10, 20, "loss=2.5"),
        "10/10 - 1s - loss: 0.7\n",
    ],
)
def test_what_is_no_training_is_no_progress(text: str) -> None:
    """A limit, an installation, an evaluation and a download are no step."""
    assert after(text) == Printed()


def test_an_evaluation_does_not_set_the_training_back() -> None:
    """Neither lines that count again, nor a bar of its own, however long."""
    assert after("step 50 loss 2.0\nstep 1 loss 9.0\nstep 51 loss 1.9\n").step == 51
    assert after("step 50 loss 2.0\nstep 1 loss 9.0\n").loss == 2.0
    text = bar("", 5, 10, "loss=2.0") + bar("", 400, 900, "loss=9.0") + "\r"
    assert (after(text).step, after(text).loss) == (5, 2.0)


def test_a_bar_before_the_training_gives_way_to_that_of_the_training() -> None:
    """A bar over the data is whole before the one with the steps begins."""
    text = bar("", 5000, 5000) + "\n" + bar("", 3, 120) + "\r"
    assert after(text).step == 3


def test_only_a_count_of_the_job_itself_is_exact() -> None:
    """A bar may begin at 0 again after a restart, and must prove nothing."""
    assert after("step 5 loss 0.2\n").exact
    assert not after(bar("", 5, 10, "loss=1")).exact
    assert not after("Epoch 3/10 | train loss: 0.5\n").exact


def test_a_preset_by_name_and_none_at_all() -> None:
    """The deployment file can choose; then nothing else counts."""
    text = "step 5 loss 0.2\n" + bar("", 9, 10) + "\r"
    assert (after(text).step, after(text, "bars").step, after(text, "none")) == (5, 9, Printed())


def test_own_patterns_go_before_every_preset() -> None:
    """A pattern has one group, or one of that name; what it does not ask for comes from the presets."""
    text = "step 5 loss 0.2\nprocessed 1,700 batches at 12.5 per second, objective 3.5\n"
    own = '{"step": "processed ([0-9,]+)", "loss": "tive (?P<loss>[0-9.]+)", "rate": "at ([0-9.]+) per"}'
    assert after(text, own) == Printed(1700, 3.5, 12.5, None, "pattern", exact=True)
    found = after(text, '{"loss": "objective ([0-9.]+)"}')
    assert (found.step, found.loss, found.source) == (5, 3.5, "lines")


@pytest.mark.parametrize("own", ["{", "{}", '{"step": "("}', '{"step": 5}', '{"step": "(\\\\d+)"} x', "[1]"])
def test_patterns_that_cannot_be_used_never_raise(own: str) -> None:
    """The controller refuses them; an agent that meets one says so and goes on."""
    output = Output(own)
    output.read([b"step 5 loss 0.2"])
    assert output.now().loss == 0.2
    assert output.message or own in {"{}", "[1]"}


def test_a_slow_pattern_is_given_up() -> None:
    """What has taken long once is not asked again, and that is said."""
    from orchestrator.contract.printed.choose import Own

    times = iter([0.0, 2.0])
    own = Own.of('{"step": "(\\\\d+)"}', lambda: next(times))
    own.read(b"5")
    own.read(b"6")

    assert own.step == 5
    assert own.message == "job.progress.step took 2.0 s on one line and is not used any more"


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "1e308", "-1e308", "1e999", "NaN"])
def test_a_loss_that_is_no_number_is_reported_as_such(loss: str) -> None:
    """The step goes on; the loss of before is not shown for it."""
    found = after(f"step 4 loss 1.5\nstep 5 loss {loss}\n")
    assert found.step == 5
    assert found.loss is not None
    assert found.loss != found.loss  # NaN


HOSTILE = [
    b"step " + b"9" * 5000 + b" loss 1",
    b"step 5 loss " + b"9" * 5000,
    b"step 1 " * 9000 + b"\n",
    b"loss " * 13000 + b"\n",
    b"epoch [1][" * 6500 + b"\n",
    b"step" + b" " * 65536 + b"\n",
    b"1%|" * 20000 + b"\n",
    b"100%|" + b"x" * 65536 + b"\n",
    b"\x1b[" * 30000 + b"\n",
    b"\x1b[" + b"1;" * 30000 + b"\n",
    b"{'loss': " * 7000 + b"'epoch'\n",
    b"Progress on:train 1.0it/" * 3000 + b"\n",
    bytes(range(256)) * 256,
    "step \u0665 loss \u0665\n".encode() * 4000,
    b"\r" * 65536,
    b"step -5 loss -1e-400\n" * 3000,
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_output_costs_little_and_never_raises(data: bytes) -> None:
    """64 KiB of anything are read within a fraction of a second of processor time."""
    began = time.process_time()
    found = after(data)
    assert time.process_time() - began < 1.0
    assert found.step is None or 0 <= found.step <= 10**12


def test_random_bytes_never_raise() -> None:
    """Words that the patterns know, cut and mixed at random."""
    chance = random.Random(7)
    words = [s.text.encode()[i : i + 9] for s in SAMPLES for i in range(0, len(s.text), 7)]
    for _ in range(400):
        text = b"".join(chance.choice(words) for _ in range(chance.randrange(1, 60)))
        found = after(bytes(b if chance.random() > 0.02 else chance.randrange(256) for b in text))
        assert found.step is None or found.step >= 0


def test_a_flood_keeps_the_newest_lines() -> None:
    """Nothing grows when nobody reads; the newest line is what is known then."""
    stream, output = Stream(), Output()
    for step in range(20_000):
        stream.feed(b"step %d loss 1.0\n" % step)
    lines = stream.lines()
    output.read(lines)

    assert sum(len(line) for line in lines) <= BACKLOG
    assert output.now().step == 19_999


def test_colours_and_overdrawn_bars_are_taken_away() -> None:
    """A line is compared without what a terminal would do with it."""
    assert plain(b"\x1b[1m 5/9 \x1b[0m\x08\x08  - \x1b[38;2;1;2;3mloss") == b"5/9 - loss"


@pytest.mark.parametrize(
    ("first", "then", "wanted"),
    [
        (
            "updates: 180\nloss 0.02\n",
            "updates: 195\n",
            '{"step": "updates: ([0-9]+)", "loss": "loss ([0-9.]+)"}',
        ),
        (bar("", 180, 400, "loss=0.02") + "\r", bar("", 195, 400) + "\r", "auto"),
        (
            bar("", 180, 400) + "\n{'loss': 0.02, 'epoch': 1}\n" + bar("", 180, 400) + "\r",
            bar("", 195, 400) + "\r",
            "trainer",
        ),
    ],
    ids=["own patterns", "bars", "trainer"],
)
def test_a_loss_belongs_to_the_step_of_its_line(first: str, then: str, wanted: str) -> None:
    """A later step without a loss has none: a value that was never measured there would look like one."""
    assert (after(first, wanted).loss, after(first, wanted).loss_step) == (0.02, None)
    found = after(first + then, wanted)
    assert (found.step, found.loss, found.loss_step) == (195, 0.02, 180)
