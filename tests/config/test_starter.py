"""The file that `tpuctl init` writes, and the published schema."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from orchestrator.app.init import write_first_files
from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import FILE_NAME, load, read
from orchestrator.config.schema import SCHEMA_ID, describe, json_schema
from orchestrator.config.setting_types import settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.config.starter import FIRST_SETTINGS, RECIPES, init_text
from orchestrator.errors import UsageError

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/tpuctl.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_validates(recipe):
    """What `init` writes can be planned at once."""
    assert read(init_text("my-model", recipe).encode(), "x", environ={}).name == "my-model"


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "blank"])
def test_a_recipe_starts_the_example_of_its_name(recipe):
    """`init` and the example's own file describe the same job."""
    example = Path(__file__).parents[2] / "examples" / recipe / "tpuctl.yaml"
    assert read(init_text("my-model", recipe).encode(), "x", environ={}).job == load(example, environ={}).job


def test_what_init_and_the_examples_ask_for_fits_a_new_project():
    """The first `up` of somebody new is not refused for quota."""
    catalog = load_catalog()
    files = [path.read_bytes() for path in (Path(__file__).parents[2] / "examples").glob("*/tpuctl.yaml")]
    specs = [read(text, "x", environ={}) for text in [init_text("my-model").encode(), *files]]
    assert len(specs) > 15
    for spec in specs:
        quota = catalog.quota_of(spec.tpu.type, spot=spec.tpu.spot)
        assert catalog.accelerator(spec.tpu.type).counted <= quota.fresh, spec.name


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_setting_stands_there_with_its_description(recipe):
    """With all settings the file is its own manual."""
    text = init_text("my-model", recipe, everything=True)
    prose = re.sub(r"\s*\n[ #]*", " ", text)
    # A file with `fleet` describes something else.
    mine = [setting for key, setting in settings().items() if key.partition(".")[0] != "fleet"]
    for setting in mine:
        assert re.search(rf"^[ #]*{setting.name}:", text, re.MULTILINE), setting.dotted_name
        assert describe(setting.dotted_name) in prose


@pytest.mark.parametrize("everything", [False, True])
def test_taking_the_comment_signs_away_changes_nothing(everything):
    """What is commented out is the default, so the file with all of it in force means the same."""
    text = init_text("my-model", project="p-1", everything=everything)
    bare = re.sub(r"^( *)# ( *\w+:( .*[^.])?)$", r"\1\2", text, flags=re.MULTILINE)
    retained = [line for line in bare.splitlines() if not re.match(r" *#", line)]
    assert len(retained) > len([line for line in text.splitlines() if line and "#" not in line])
    assert read("\n".join(retained).encode(), "x", environ={}) == read(text.encode(), "x", environ={})


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_short_file_is_read_in_a_minute(recipe):
    """It has what a first job needs, says where the rest is, and means the same as the long one."""
    short, whole = init_text("my-model", recipe), init_text("my-model", recipe, everything=True)
    assert len(short.splitlines()) <= 58
    assert "docs/zones.md" in short, "types and zones"
    assert "Your program needs the same number of steps" in " ".join(short.replace("#", " ").split())
    assert "tpuctl init --all-settings" in short
    assert "tpuctl init --all-settings" not in whole
    assert {
        key for key in FIRST_SETTINGS if not re.search(rf"^[ #]*{key.split('.')[-1]}:", short, re.MULTILINE)
    } == set()
    assert settings().keys() >= FIRST_SETTINGS
    assert read(short.encode(), "x", environ={}) == read(whole.encode(), "x", environ={})


@pytest.mark.parametrize("everything", [False, True])
def test_no_comment_is_wider_than_80_columns(everything):
    """A terminal of 80 columns breaks none of them; a value is written as it is."""
    lines = init_text("my-model", everything=everything).splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_the_first_file_says_what_is_guessed_and_where_to_save(tmp_path):
    """A zone that nobody chose, and a command made from what lies in the folder."""
    (tmp_path / "mine.py").write_text("print('hello')")
    text = re.sub(r"\s*\n[ #]*", " ", write_first_files(tmp_path, None, None).file.read_text())
    assert "A guess: the cheapest documented zone." in text
    assert "A guess: mine.py is the only program here. It must save to $TPUCTL_CHECKPOINT_DIR," in text
    assert "# An example: write your own. It must save to" in init_text("mine")
    assert "A guess" not in init_text("mine", zone="us-central1-a")


def test_the_command_is_edited_without_a_thought_for_yaml():
    """No quotes around it: an apostrophe, a sign or a second line written into it means what it says."""
    text = init_text("mine", command='python3 train.py --out "$OUT"', setup="pip install -r requirements.txt")
    assert '  command: |-\n    python3 train.py --out "$OUT"\n' in text
    assert "  setup: pip install -r requirements.txt\n" in text, "the same in YAML"
    edited = text.replace('"$OUT"', """'a b' --note: "it's" # 1 \\\n      --more""")
    job = read(edited.encode(), "x", environ={}).job
    assert job.command == """python3 train.py --out 'a b' --note: "it's" # 1 \\\n  --more"""
    odd = init_text("mine", command=" a\n\tb")
    assert read(odd.encode(), "x", environ={}).job.command == " a\n\tb", "quoted where a block cannot hold it"


def test_comments_stand_in_the_column_of_what_they_belong_to():
    """`progress` is a word or a section, in a section that is in force."""
    lines = init_text("mine", everything=True).splitlines()
    at = lines.index("  # progress: auto")
    assert '  #   # step: ""' in lines[at + 2 : at + 5]
    inside = lines[lines.index("job:") + 1 :]
    job = inside[: inside.index("")]
    assert [line for line in job if not line.startswith("  ")] == []


@pytest.mark.parametrize("recipe", [None, *EXAMPLES])
def test_editors_find_the_schema_and_the_schema_takes_the_file(recipe, tmp_path):
    """The first line leads the YAML language server to a file that exists: in a new folder, and in the checkout."""
    written = write_first_files(tmp_path / "new", recipe, None).file
    for path in [written] if recipe is None else [written, ROOT / "examples" / recipe / FILE_NAME]:
        mark, place = path.read_text().splitlines()[0].split("=")
        assert mark == "# yaml-language-server: $schema"
        schema = json.loads((path.parent / place).read_text())
        assert schema == json_schema()
        jsonschema.validate(YAML(typ="safe").load(path), schema)


@pytest.mark.parametrize(
    ("name", "tpu_type", "zone"),
    [
        ("Bad", "v2-8", None),
        ("ok", "v9-8", None),
        ("ok", "v2-8", "mars-1-a"),
        ("a: b\nc", "v2-8", None),
        ("null", "v2-8", "no"),
    ],
)
def test_wrong_answers_are_refused_before_anything_is_written(name, tpu_type, zone):
    """`init` takes no value that `plan` would refuse."""
    with pytest.raises(ConfigError):
        init_text(name, tpu_type=tpu_type, zone=zone)


def test_an_unknown_recipe_gets_a_hint():
    """The near one is named."""
    with pytest.raises(UsageError) as caught:
        init_text("ok", "numpy-ml")
    assert caught.value.hint == "did you mean numpy-lm?"


def test_the_first_zone_has_the_type_and_is_public():
    """A newcomer starts where everybody may."""
    assert "zones: [us-central1-a]" in init_text("ok", tpu_type="v5litepod-4")
    assert "zones: [us-central2-b]" in init_text("ok", tpu_type="v4-8")


def test_the_schema_is_of_the_stated_draft_and_closed():
    """Unknown keys are marked by editors."""
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == SCHEMA_ID
    sections = [schema, *schema["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections)


def test_the_schema_offers_types_and_zones():
    """Editors complete them."""
    tpu = json_schema()["$defs"]["TpuSpec"]["properties"]
    one, several = tpu["type"]["anyOf"]
    assert several["items"] == one
    assert "v5litepod-16" in one["enum"]
    assert "tpu7x-2x2x1" not in one["enum"]
    assert "europe-west4-b" in tpu["zones"]["items"]["enum"]


def test_every_setting_is_described_and_defaults_are_shown():
    """Durations show as people write them."""
    assert [key for key in settings() if not describe(key)] == []
    assert json_schema()["$defs"]["WatchSpec"]["properties"]["poll"]["default"] == "15s"
