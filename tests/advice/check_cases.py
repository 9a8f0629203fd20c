"""What a case of a rule is, and the pieces of scripts that the cases share."""

from dataclasses import dataclass, field

from orchestrator.domain.level import Level
from tests.planning.planning_kit import a_spec

NOTE, WARN, STOP = Level.NOTE, Level.WARN, Level.STOP
SAVES = 'python3 train.py --out "$TPUCTL_CHECKPOINT_DIR"'
V3 = {"tpu__type": "v3-8", "tpu__zones": ["europe-west4-a"]}


@dataclass(frozen=True)
class Case:
    """Hold a folder (*files*) and settings, with the level and place of the expected finding."""

    rule: str
    level: Level | None = None
    where: str = ""
    files: dict = field(default_factory=dict)
    spec: dict = field(default_factory=dict)
    number: str = ""

    @property
    def deployment(self):
        """Return the Spec."""
        return a_spec(**{"job__command": SAVES, **self.spec})

    def __str__(self):
        return f"{self.rule}-{self.where or 'silent'}"


def py(text):
    """Return a folder with one script."""
    return {"train.py": text}


XLA = "import torch\nimport torch_xla\nimport torch_xla.core.xla_model as xm\n"
LOOP = "def f():\n    for x in loader:\n        loss.backward()\n        xm.optimizer_step(opt)\n"
TF = "import tensorflow as tf\n"
HF = "import transformers\nfrom transformers import AutoTokenizer, DataCollatorWithPadding\n"
LOADER = "from torch.utils.data import DataLoader\n"
FAIRSEQ = "fairseq-train data --tpu --num-workers 2 --save-dir $TPUCTL_CHECKPOINT_DIR"
SECRET = "hf_" + "aB3" * 11
PRIVATE = "-----BEGIN PRIVATE " + r"KEY-----\n" + "MIIEvQ" * 10
HEX = "0123456789abcdef" * 2 + "01234567"
