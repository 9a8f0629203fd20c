"""Deployment files from a seed: what people write, in the combinations that nobody thinks of."""

import random

import yaml

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read
from orchestrator.config.others.conversion import GKE
from orchestrator.config.shipped_catalog import load_catalog

TEXTS = (
    "python3 train.py", 'python3 train.py --out "$TPUCTL_CHECKPOINT_DIR"', "a: b # c", "no", "- x", "1e3",
    "echo $(nproc) $$ ${HOME} '$(x)' \"a\\b\"", "set -e\nfor i in 1 2; do\n  python3 x.py --i $i\ndone",
    "export X=1; ./run.sh | tee log", "日本語 \x7f\u2028 🙂",
)  # fmt: skip
NAMES = ("A", "ON", "y", "NO_1", "LONG_NAME")
VALUES = (
    "", "yes", "1", "0x10", "12:30", "a b", "$HOME", "gs://$TPUCTL_BUCKET/x", "$$5", "it's", '"', "é", "#no",
    "w$TPUCTL_WORKER_ID",
)  # fmt: skip


def deployment(seed):
    """Return one valid deployment file as text, and its Spec."""
    rng = random.Random(seed)
    while True:
        text = yaml.safe_dump(_document(rng))
        try:
            return text, read(text.encode(), "tpuctl.yaml", environ={})
        except ConfigError:
            continue


def _document(rng):
    catalog = load_catalog()
    known = {generation for generation, _ in GKE.values()}
    kinds = [kind for kind in catalog.served() if kind.partition("-")[0] in known and catalog.zones_of(kind)]
    kind = rng.choice(kinds)
    zones = list(catalog.zones_of(kind))
    rng.shuffle(zones)
    zones = zones[: rng.randint(1, 3)]
    tpu = {
        "type": kind,
        "zones": zones,
        "spot": rng.random() < 0.7,
        "across_regions": len({z[:-2] for z in zones}) > 1,
    }
    tpu |= rng.choice(({}, {"runtime": "v2-alpha-x"}, {"request": "queued"}, {"strategy": "race"}))
    if rng.random() < 0.15:
        tpu |= {"request": "queued", "reservation": "our-block", "spot": False}
    if rng.random() < 0.2:
        tpu["other_types"] = [rng.choice([one for one in kinds if zones[0] in catalog.zones_of(one)])]
    saving = rng.choice(
        ({}, {"dir": "bucket", "format": "orbax"}, {"dir": "/mnt/out"}, {"marker": "it's done", "keep": 5})
    )
    job = {
        "command": rng.choice(TEXTS), "setup": rng.choice(("", *TEXTS)), "checkpoint": saving,
        "env": {rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randint(0, 4))},
        "secrets": rng.choice(({}, {"WANDB_API_KEY": "secret://wandb-api-key"}, {"A_B": "secret://a-b/versions/3"})),
        "data": rng.choice(({}, {"data/wiki": "gs://public/wiki/en"}, {"text": "corpus", "b": "gs://other"})),
        "failures": rng.randint(1, 9), "stop_signal": rng.choice(("TERM", "INT", "USR1")),
    }  # fmt: skip
    if rng.random() < 0.3:
        job["image"] = "europe-docker.pkg.dev/p/r/train:1"
    elif rng.random() < 0.3:
        job |= {"grace": "25s", "target_steps": 100, "python": "3.12", "source": "code"}
    name = rng.choice(("a", "demo", "llm-7b", "x" * 40, "a-" * 19 + "a"))
    account = {"service_account": "job@p-1.iam.gserviceaccount.com"}
    more = rng.choice(({}, {"vm": "none"}, account, {"watch": {"budget_usd": 9}}))
    return {"name": name, "tpu": tpu, "job": job, **more}
