"""The documentation keeps up with the program: commands parse, links lead somewhere, blocks run or say why not."""

import ast
import re
from pathlib import Path

import orchestrator
from tests.cli.cli_kit import ROOT
from tests.docs.pages import LINK, PAGES, blocks, commands, refused, text_of

RUN = {
    "docs/private.md",
    "docs/tutorial.md",
    "docs/your-own-job.md",
    "docs/ko/tutorial.md",
    "docs/ja/tutorial.md",
}
"""
The pages whose blocks test_pages_run.py runs, or a page with the same ones (test_languages.py).

The README's two lines are run by .ci/run.
"""


def test_every_command_of_a_page_is_one():
    """Copied from the page, the command line takes it."""
    assert {(page, line): why for page in PAGES for line in commands(page) if (why := refused(line))} == {}


def test_every_link_leads_to_a_file():
    """Also after a page has moved."""
    links = [(page, link) for page in PAGES for link in LINK.findall(text_of(page))]
    assert [(page, link) for page, link in links if not ((ROOT / page).parent / link).exists()] == []


def test_every_shell_block_is_run_or_says_why_not():
    """A reader may copy each one."""
    shown = [(page, block) for page in PAGES if str(page) not in RUN for block in blocks(page)]
    unsaid = [(page, b.text) for page, b in shown if not b.message and "python3 -m venv" not in b.text]
    assert unsaid == []


def test_every_page_is_in_the_table_of_contents():
    """Nobody has to guess what there is."""
    listed = {(Path("docs") / link) for link in LINK.findall(text_of("docs/README.md"))}
    pages = {page for page in PAGES if page.parent == Path("docs")} - {Path("docs/README.md")}
    assert pages - listed == set()


def test_a_wrong_command_is_noticed():
    """The check above can fail."""
    assert "upp" in refused("tpuctl upp")
    assert "--nothing" in refused("tpuctl up --nothing")
    assert refused("tpuctl local stop now") == "unexpected now"
    assert refused("tpuctl logs -f") == ""


def hints():
    """Yield (place, command) for each tpuctl command in the texts of the package."""
    for path in sorted(Path(orchestrator.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for line in re.findall(r"`(tpuctl [^`\n]+)`", node.value):
                    yield path.name, line


def test_every_next_command_in_an_error_parses():
    """Our command line accepts what a message asks the user to type."""
    found = list(hints())
    assert len(found) > 40
    assert {f"{place}: {line}": why for place, line in found if (why := refused(line))} == {}


def test_each_environment_variable_of_the_page_is_read_by_the_program():
    """A name that is gone leaves the page; the two that hooks get are there too."""
    code = " ".join(path.read_text() for path in Path(orchestrator.__file__).parent.rglob("*.py"))
    rows = re.findall(r"^\| (`.+?) \|", text_of("docs/environment.md"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)} - {"TPUCTL_SECTION__KEY"}
    of_libraries = {"HTTPS_PROXY", "NO_PROXY"}  # requests reads them
    assert len(named) > 12
    assert {name for name in named - of_libraries if f'"{name}"' not in code} == set()
