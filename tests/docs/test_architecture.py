"""docs/architecture.md is true: its picture is that of the imports, and every file that it names is there."""

import re

from tests.docs.picture import BEGIN, END, PAGE, ROOT, picture

TEXT = PAGE.read_text()


def test_the_picture_is_that_of_the_imports():
    """`python -m tests.docs.picture` writes it again."""
    assert TEXT.split(BEGIN, 1)[1].split(END, 1)[0] == picture()


def test_every_file_that_it_names_is_there():
    """A name without a folder at its root is one of the package."""
    names = re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?)`", TEXT)
    assert len(names) >= 30
    places = {name: (ROOT / "orchestrator" / name, ROOT / name) for name in names}
    assert [name for name, found in places.items() if not any(path.exists() for path in found)] == []


def test_every_function_or_constant_that_it_names_is_in_its_file():
    """As in `planning/tpu/node_verdict.py`: `CREATE_TIMEOUT`."""
    pairs = re.findall(r"`([\w/]+\.py)`: `(\w+)`", TEXT)
    assert pairs
    for name, symbol in pairs:
        text = (ROOT / "orchestrator" / name).read_text()
        assert re.search(rf"^(def {symbol}\(|{symbol} = )", text, re.MULTILINE), (name, symbol)


def test_the_architecture_page_answers_twenty_questions():
    """Each with at least one file."""
    rows = [line for line in TEXT.splitlines() if re.match(r"\| .*\? \|", line)]
    assert len(rows) >= 20
    assert all("`" in row for row in rows)
