"""The file of a job for a fleet: every finding has its place, and its job is judged as any other."""

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.fleet_job import read_job
from orchestrator.config.load import load

FLEET = "name: grant\ntpu: {type: v2-8, zones: [us-central1-b]}\nfleet: {nodes: 2}\n"


def job_of(folder, text):
    """Read a job for the fleet of these tests."""
    (folder / "tpuctl.yaml").write_text(FLEET)
    (folder / "job.yaml").write_text(text)
    return read_job(folder / "job.yaml", folder / "tpuctl.yaml", {})


def test_secrets_need_a_fleet_whose_nodes_may_read_them(tmp_path):
    """They are named, and never written there."""
    text = "name: a\njob: {command: x, secrets: {TOKEN: 'secret://hf'}}\n"
    with pytest.raises(ConfigError) as raised:
        job_of(tmp_path, text)
    (finding,) = raised.value.findings
    assert (finding.setting, "scope: cloud-platform" in finding.hint) == ("job.secrets", True)
    wide = FLEET.replace("zones:", "scope: cloud-platform, zones:")
    (tmp_path / "tpuctl.yaml").write_text(wide)
    (tmp_path / "job.yaml").write_text(text)
    found = read_job(tmp_path / "job.yaml", tmp_path / "tpuctl.yaml", {})
    assert found.job.secrets == {"TOKEN": "secret://hf"}


def test_a_matrix_makes_variables_of_tasks(tmp_path):
    """Numbers come as they are written, ranges are counted out."""
    text = "name: sweep\nmatrix: {lr: [0.1, 1e-05], seed: 1..3}\njob: {command: x, target_steps: 9}\n"
    job = job_of(tmp_path, text)
    assert (job.name, job.job.command, job.job.target_steps) == ("sweep", "x", 9)
    assert len(job.parameters) == 6
    assert job.parameters[-1] == {"lr": "1e-05", "seed": "3"}


def test_an_array_has_tasks_without_parameters_and_neither_makes_one(tmp_path):
    """The number of a task is a variable of its own."""
    assert job_of(tmp_path, "name: a\narray: 3\njob: {command: x}\n").parameters == ({}, {}, {})
    assert job_of(tmp_path, "name: a\njob: {command: x}\n").parameters == ({},)


def test_a_list_has_a_task_for_each_row(tmp_path):
    """As a spreadsheet saves it; values are text, and may hold commas in quotes."""
    (tmp_path / "sweep.csv").write_bytes(b'\xef\xbb\xbflr, name\r\n0.1,"a, b"\r\n\r\n1e-05,c\r\n')
    job = job_of(tmp_path, "name: a\nlist: sweep.csv\njob: {command: x}\n")
    assert job.parameters == ({"lr": "0.1", "name": "a, b"}, {"lr": "1e-05", "name": "c"})


@pytest.mark.parametrize(
    ("rows", "findings"),
    [
        ("lr,seed\n0.1,1\n0.2\n0.3,1,2\n", [(3, "has 1 values"), (4, "has 3 values")]),
        ("lr,x-y,lr\n1,2,3\n", [(1, "lr is there twice"), (1, "'x-y' cannot name")]),
        ("lr\n", [(1, "has 0 tasks")]),
        ("", [(1, "has 0 tasks")]),
        ('lr\n"0.1\n', [(2, "is no CSV")]),
        ("lr\n" + "1\n" * 10_001, [(1, "has 10,001 tasks")]),
    ],
)
def test_what_is_wrong_in_a_list_is_named_by_its_line(tmp_path, rows, findings):
    """In the CSV file, all of it at once."""
    (tmp_path / "sweep.csv").write_text(rows)
    with pytest.raises(ConfigError) as raised:
        job_of(tmp_path, "name: a\nlist: sweep.csv\njob: {command: x}\n")
    found = raised.value.findings
    assert all(one.file.endswith("sweep.csv") for one in found)
    assert [
        (one.line, one.message.startswith(said)) for one, (_, said) in zip(found, findings, strict=True)
    ] == [(line, True) for line, _ in findings]


def test_files_to_collect_are_named_with_their_table(tmp_path):
    """They stay within the source folder."""
    text = "name: a\ncollect: {files: [metrics.json, out/log.csv], into: r.csv}\njob: {command: x}\n"
    job = job_of(tmp_path, text)
    assert (job.collect, job.into) == (("metrics.json", "out/log.csv"), "r.csv")


def test_a_task_has_one_slice_unless_the_file_says_more(tmp_path):
    """A range is for checkpoints that any number of workers can read."""
    many = "name: a\nslices: {min: 2, max: 4}\njob: {command: x, checkpoint: {format: orbax, dir: bucket}}\n"
    assert job_of(tmp_path, "name: a\njob: {command: x}\n").slices == (1, 1)
    assert job_of(tmp_path, "name: a\nslices: 4\njob: {command: x}\n").slices == (4, 4)
    assert job_of(tmp_path, many).slices == (2, 4)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\njob: {comand: x}\n", (2, 7, "job.comand")),
        ("name: A_b\njob: {command: x}\n", (1, 1, "name")),
        ("name: a\narray: 0\njob: {command: x}\n", (2, 1, "array")),
        ("name: a\narray: 2\nmatrix: {x: [1]}\njob: {command: x}\n", (2, 1, "array")),
        ("name: a\nmatrix: {x: 1}\njob: {command: x}\n", (2, 1, "matrix")),
        ("name: a\nmatrix: {'x-y': [1]}\njob: {command: x}\n", (2, 1, "matrix")),
        ("name: a\nmatrix: {x: 1..200, y: 1..200}\njob: {command: x}\n", (2, 1, "matrix")),
        ("name: a\nlist: [1]\njob: {command: x}\n", (2, 1, "list")),
        ("name: a\nlist: a.csv\nmatrix: {x: [1]}\njob: {command: x}\n", (3, 1, "matrix")),
        ("name: a\ncollect: [m.json]\njob: {command: x}\n", (2, 1, "collect")),
        ("name: a\ncollect: {files: [../m.json]}\njob: {command: x}\n", (2, 11, "collect.files")),
        ("name: a\ncollect: {files: [m.bin]}\njob: {command: x}\n", (2, 11, "collect.files")),
        ("name: a\ncollect: {files: [m.json], into: /r.csv}\njob: {command: x}\n", (2, 28, "collect.into")),
        ("name: a\n", (1, 1, "job")),
        ("name: a\ntpu: {}\njob: {command: x}\n", (2, 1, "tpu")),
        ("name: a\nslices: 0\njob: {command: x}\n", (2, 1, "slices")),
        ("name: a\nslices: yes\njob: {command: x}\n", (2, 1, "slices")),
        ("name: a\nslices: {min: 3, max: 2}\njob: {command: x}\n", (2, 1, "slices")),
        ("name: a\nslices: {max: 2}\njob: {command: x}\n", (2, 1, "slices")),
        ("name: a\nslices: {min: 1, max: 2}\njob: {command: x}\n", (2, 1, "slices")),
        ("name: a\njob: {command: x, run_on: vm}\n", (2, 19, "job.run_on")),
        ("name: a\nafter: {b: never}\njob: {command: x}\n", (2, 1, "after")),
        ("name: a\nafter: [a]\njob: {command: x}\n", (2, 1, "after")),
        ("name: a\nafter: [[b]]\njob: {command: x}\n", (2, 1, "after")),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, place):
    """In the job's file, not in the fleet's."""
    with pytest.raises(ConfigError) as raised:
        job_of(tmp_path, text)
    found = [(one.file, one.line, one.col, one.setting) for one in raised.value.findings]
    assert any((line, col, key) == place and file.endswith("job.yaml") for file, line, col, key in found), (
        found
    )


def test_jobs_that_come_before_have_to_end_well_unless_the_file_says_any(tmp_path):
    """A list is the short form."""
    assert job_of(tmp_path, "name: a\njob: {command: x}\nafter: [b, c]\n").after == {"b": "ok", "c": "ok"}
    assert job_of(tmp_path, "name: a\njob: {command: x}\nafter: {b: any}\n").after == {"b": "any"}


def test_the_loop_on_the_vm_keeps_the_nodes_that_there_are(tmp_path):
    """A fleet that follows its queue is watched from the computer."""
    text = FLEET.replace("{nodes: 2}", "{nodes: 2, min_idle: 0}") + "watch: {on_vm: true}\n"
    (tmp_path / "tpuctl.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(tmp_path / "tpuctl.yaml")
    assert [one.setting for one in raised.value.findings] == ["fleet.min_idle"]
