"""Lists of packages that the setup names and nothing sends."""

from tests.advice.check_cases import WARN, Case

LISTS = tuple(
    Case("requirements-file-missing", WARN, "job.setup", files, {"job__setup": setup}, number)
    for number, setup, files in (
        ("requirements.txt", "pip install -r requirements.txt", {}),
        ("pins.txt", 'pip install "numpy>2" -r a.txt --constraint=pins.txt', {"a.txt": "numpy\n"}),
        ("reqs/a.txt", "pip install --requirement reqs/a.txt", {".gitignore": "reqs/\n", "reqs/a.txt": ""}),
    )
)
