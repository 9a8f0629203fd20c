"""For each rule and each of its levels: folders and settings on which it must speak."""

from tests.advice.check_cases import (
    FAIRSEQ,
    HEX,
    HF,
    LOADER,
    LOOP,
    NOTE,
    PRIVATE,
    SAVES,
    SECRET,
    STOP,
    TF,
    V3,
    WARN,
    XLA,
    Case,
    py,
)

SH = {"job__command": "sh run.sh"}
OUT = "import os, torch\nout_dir = 'out'\ntorch.save(m, os.path.join(out_dir, 'ckpt.pt'))\n"
BIG = {".tpuctlignore": "/a\n/b\n", "a": 60_000_000_000, "b": 60_000_000_000}
EXCLUDED = {".gitignore": "*.bin\n", "data/a.bin": "x", "data/prepare.py": "x = 1\n"}


def resume(flags):
    """Return a command that resumes by these flags."""
    return {"job__command": f"python3 train.py {flags}"}


SPEAK = (
    Case("program-missing", WARN, "job.command", number="train.py"),
    Case(
        "program-missing",
        WARN,
        "job.command",
        {"a.py": "x = 1\n", "train.sh": "true\n"},
        spec={"job__command": "sh prepare.sh && exec python -u src/train.py --lr 1"},
        number="src/train.py",
    ),
    Case("wide-account", NOTE, "watch.self_delete", spec={"watch__self_delete": True}),
    Case("secret-in-env", WARN, "job.env.DATA", spec={"job__env": {"DATA": HEX}}, number="40"),
    Case(
        "removed-torch-xla",
        WARN,
        "job.command",
        spec={"job__command": f"{SAVES} && python3 xla_spawn.py \\\n  --num_cores 8 \\\n  x.py"},
        number="nprocs=8",
    ),
    Case(
        "open-notebook", STOP, "start.sh:2", {"start.sh": "#!/bin/sh\njupyter lab --NotebookApp.token= &\n"}
    ),
    Case(
        "open-notebook",
        STOP,
        "job.setup",
        spec={"job__setup": "jupyter lab --ip=0.0.0.0 &"},
        number="0.0.0.0",
    ),
    Case("key-in-source", STOP, "train.py", py(f"login('{SECRET}')\n"), number="Hugging Face"),
    Case("key-in-source", STOP, "key.json", {"key.json": '{"private_key": "' + PRIVATE + '"}'}),
    Case("key-in-source", WARN, "train.py", {**py(f"x = '{SECRET}'\n"), ".tpuctlignore": "!train.py\n"}),
    Case("key-in-source", WARN, ".env", {".env": "A=1\n", ".tpuctlignore": "!.env\n"}),
    Case("key-in-source", NOTE, "tls.pem", {"tls.pem": "x"}),
    Case("key-in-source", NOTE, "id_ed25519", {"id_ed25519": "x"}),
    Case("secret-in-env", STOP, "job.env.HF_TOKEN", spec={"job__env": {"HF_TOKEN": SECRET}}, number="36"),
    Case("secret-in-env", STOP, "job.env.WANDB", spec={"job__env": {"WANDB": HEX}}, number="40"),
    Case("secret-in-env", STOP, "job.env.K", spec={"job__env": {"K": "-----BEGIN RSA PRIVATE KEY-----\nx"}}),
    Case("secret-in-env", STOP, "job.command", spec={"job__command": f"WANDB_API_KEY={HEX} {SAVES}"}),
    Case(
        "secret-in-env",
        WARN,
        "job.env.MY_API_KEY",
        spec={"job__env": {"MY_API_KEY": "abcdefgh1"}},
        number="9",
    ),
    Case("checkpoint-dir-unused", WARN, "job.command", py("print(1)"), {"job__command": "python3 train.py"}),
    Case(
        "no-save",
        WARN,
        "job.command",
        {"train.py": "import model\n", "model.py": "x = 1\n"},
        number="2 files",
    ),
    Case(
        "no-save",
        WARN,
        "job.command",
        {"run.sh": "python3 -m pkg.train\n", "pkg/train.py": "open('x')\n"},
        SH,
    ),
    Case(
        "no-load",
        WARN,
        "train.py:4",
        py(
            "import numpy as np\nfor n in range(9):\n    w = w - 1\n    np.savez(f'{out}/ckpt_{n}.npz', w=w)\n"
        ),
    ),
    Case(
        "late-save",
        WARN,
        "train.py:4",
        py("import torch\nfor x in data:\n    x.backward()\ntorch.save(m, p)\n"),
    ),
    Case(
        "late-save",
        WARN,
        "train.py:5",
        py(
            "import numpy as np\nif __name__ == '__main__':\n    while step < 9:\n        step += f(step)\n"
            "    np.savez(path, w=w)\n"
        ),
    ),
    Case(
        "late-save",
        WARN,
        "train.py:6",
        py(
            "import torch\ndef main():\n    m = build()\n    for x in data:\n        m.backward()\n"
            "    torch.save(m, p)\nmain()\n"
        ),
    ),
    Case("relative-save", WARN, "train.py:3", py(OUT), {"job__command": "python3 train.py"}, number="out"),
    Case("relative-save", WARN, "train.py:2", py("import torch\ntorch.save(m, f'm-{n}.pt')\n")),
    Case(
        "relative-save",
        WARN,
        "train.py:2",
        py("from transformers import TrainingArguments\nTrainingArguments('out', bf16=True)\n"),
    ),
    Case("backup-deleted", STOP, "train.py:2", py("import keras\nkeras.callbacks.BackupAndRestore('/x')\n")),
    Case(
        "backup-deleted",
        STOP,
        "train.py:2",
        py("import tensorflow as tf\ntf.keras.callbacks.BackupAndRestore(d, delete_checkpoint=True)\n"),
    ),
    Case(
        "marker-never-written",
        STOP,
        "job.checkpoint.format",
        py("import os, numpy as np\nnp.savez(os.environ['TPUCTL_CHECKPOINT_DIR'] + '/latest.npz', w=w)\n"),
        {"job__checkpoint": {"format": "marker"}},
        number="COMPLETE",
    ),
    Case(
        "marker-never-written",
        STOP,
        "job.checkpoint.format",
        {**py("import torch\ntorch.save(m, p)\n"), "x.schema.json": '{"marker": "COMPLETE", "jupyter": 1}'},
        {"job__checkpoint": {"format": "marker"}},
    ),
    Case("hollow-resume", WARN, "job.command", spec=resume('--resume_from_checkpoint "$TPUCTL_RESUME"')),
    Case("hollow-resume", WARN, "job.command", spec=resume('--ckpt_path="${TPUCTL_RESUME}" --x')),
    Case("hollow-resume", WARN, "job.command", spec=resume("--resume $TPUCTL_RESUME --epochs 3")),
    Case("hollow-resume", WARN, "run.sh:1", {"run.sh": "x --start $TPUCTL_RESUME_STEP\n"}, SH),
    Case("data-excluded", WARN, "job.command", EXCLUDED, {"job__command": "python3 x.py --data data/a.bin"}),
    Case("data-excluded", WARN, "train.py:1", {**EXCLUDED, **py("f = open('data/a.bin', 'rb')\n")}),
    Case(
        "data-excluded",
        WARN,
        "train.py:4",
        {
            **EXCLUDED,
            **py(
                "import os, numpy as np\nd = os.path.join('data', name)\ndef f(s):\n"
                "    return np.memmap(os.path.join(d, 'a.bin'), mode='r')\n"
            ),
        },
        number=".gitignore:1",
    ),
    Case("data-room", STOP, "job.data", BIG, {"job__data": {"d": "./a", "e": "./b"}}, number="120 GB"),
    Case("data-room", NOTE, "job.data", BIG, {"job__data": {"d": "./a"}}, number="60 GB"),
    Case("missing-requirement", WARN, "job.setup", py("import torch\n"), number="torch"),
    Case(
        "missing-requirement",
        WARN,
        "train.py:2",
        {**py("import torch\nimport wandb\n"), "requirements.txt": "torch==2.13.0\n"},
        {"job__setup": "pip install -r requirements.txt"},
        number="wandb",
    ),
    Case(
        "missing-requirement",
        NOTE,
        "train.py:1",
        py("import torch\n"),
        {"job__setup": "pip install some-trainer"},
    ),
    Case("save-elsewhere", WARN, "job.command", spec={"job__command": f"{SAVES} --output_dir ./out"}),
    Case(
        "save-elsewhere",
        WARN,
        "run.sh:1",
        {"run.sh": "x \\\n --save-dir=/opt/x\n"},
        {"job__command": "sh run.sh"},
    ),
    Case(
        "write-lost", WARN, "train.py:3", py("import torch\nOUT = '/tmp/out'\ntorch.save(m, OUT + '/m.pt')\n")
    ),
    Case("write-lost", WARN, "train.py:2", py("import os\nm.save_pretrained(os.path.expanduser('~/m'))\n")),
    Case("write-lost", NOTE, "train.py:1", py("open('/tmp/log', 'w')\n")),
    Case(
        "bucket-not-a-folder",
        WARN,
        "job.command",
        spec={"job__command": "python3 run_clm.py --output_dir gs://b/o"},
    ),
    Case(
        "bucket-not-a-folder",
        WARN,
        "job.command",
        spec={"job__command": "fairseq-train d --save-dir gs://b/o"},
    ),
    Case("bucket-not-a-folder", WARN, "train.py:3", py(HF + "transformers.TrainingArguments('gs://b/o')\n")),
    Case(
        "summary-writer-gs",
        WARN,
        "train.py:2",
        py("from torch.utils.tensorboard import SummaryWriter as W\nW(f'gs://{bucket}/runs')\n"),
        number="42",
    ),
    Case(
        "save-interval",
        WARN,
        "job.checkpoint.every",
        spec={"job__checkpoint": {"every": "60m"}},
        number="12%",
    ),
    Case(
        "save-interval",
        WARN,
        "job.checkpoint.every",
        spec={"job__checkpoint": {"every": "60m", "save_pause": 5}},
        number="88%",
    ),
    Case(
        "save-interval",
        NOTE,
        "job.checkpoint.every",
        spec={"job__checkpoint": {"every": "10m", "save_pause": 5}},
        number="at 0.3 h",
    ),
    Case(
        "save-interval",
        WARN,
        "job.checkpoint.every",
        spec={"job__checkpoint": {"every": "30s", "save_pause": 20}},
    ),
    Case(
        "core-memory",
        STOP,
        "job.memory",
        spec={**V3, "job__memory": {"params_millions": 1500}},
        number="22.4",
    ),
    Case(
        "core-memory",
        WARN,
        "job.memory",
        spec={**V3, "job__memory": {"params_millions": 1200}},
        number="16 GiB",
    ),
    Case(
        "core-memory",
        NOTE,
        "job.memory",
        spec={**V3, "job__memory": {"params_millions": 125, "activations_gb": 14}},
        number="batch 13.0",
    ),
    Case(
        "core-memory",
        WARN,
        "job.memory",
        spec={"tpu__type": "v2-8", "tpu__zones": ["us-central1-b"], "job__memory": {"params_millions": 600}},
        number="8 GiB",
    ),
    Case(
        "disk-room",
        WARN,
        "job.memory.text_gb",
        py("import datasets"),
        {"job__memory": {"text_gb": 20}},
        "400 GB",
    ),
    Case(
        "disk-room",
        NOTE,
        "job.memory.text_gb",
        py("import datasets"),
        {"job__memory": {"text_gb": 4}},
        "80 GB",
    ),
    Case(
        "disk-room",
        WARN,
        "job.memory.text_gb",
        spec={"job__run_on": "vm", "job__setup": "fairseq-preprocess x", "job__memory": {"text_gb": 30}},
        number="50 GB",
    ),
    Case(
        "fairseq-memory",
        WARN,
        "job.command",
        spec={**V3, "job__command": FAIRSEQ, "job__memory": {"text_gb": 25}},
        number="2 workers x 8 processes = 373 GiB",
    ),
    Case(
        "fairseq-memory",
        WARN,
        "job.command",
        spec={
            **V3,
            "job__command": FAIRSEQ,
            "job__run_on": "vm",
            "vm__machine_type": "e2-standard-4",
            "job__memory": {"text_gb": 2},
        },
        number="16 GiB",
    ),
    Case(
        "tokenizer-memory",
        WARN,
        "train.py:2",
        py("from tokenizers import BertWordPieceTokenizer\nBertWordPieceTokenizer().train(files)\n"),
        {**V3, "job__memory": {"text_gb": 40}},
        "373 GiB",
    ),
    Case("installed-anew", NOTE, "job.setup", spec={"job__setup": "apt-get -qq install -y libsndfile1"}),
    Case("installed-anew", NOTE, "job.setup", spec={"job__setup": "pip install --user numpy==2.2.6"}),
    Case("installed-anew", NOTE, "job.setup", spec={"job__setup": "conda env create -f env.yml"}),
    Case("python-pin", WARN, "requirements.txt:1", {"requirements.txt": "numpy==2.4.6\n"}, number="3.10"),
    Case(
        "python-pin",
        WARN,
        "job.setup",
        spec={"job__setup": "pip install transformers==5.23.0"},
        number="3.10",
    ),
    Case(
        "unpinned-torch",
        WARN,
        "job.setup",
        spec={"job__setup": "pip install -q torch 'jax[tpu]'"},
        number="GB",
    ),
    Case(
        "unpinned-torch",
        WARN,
        "requirements.txt:2",
        {"requirements.txt": "numpy==2.4.6\ntorch>=2.0  # any\n"},
    ),
    Case(
        "torch-xla-pair",
        WARN,
        "requirements.txt:2",
        {"requirements.txt": "torch==2.13.0\ntorch_xla==2.9.0\n"},
        number="2.9.0",
    ),
    Case(
        "torch-xla-pair",
        WARN,
        "job.setup",
        spec={"job__setup": "pip3 install torch==2.8.0 torch_xla[tpu]==2.9.0"},
    ),
    Case("removed-torch-xla", WARN, "train.py:4", py(XLA + "print(xm.xrt_world_size(), 1)\n"), number="2.9"),
    Case(
        "removed-torch-xla", WARN, "train.py:1", py("from torch_xla.core.xla_model import get_ordinal as o\n")
    ),
    Case(
        "removed-torch-xla",
        WARN,
        "train.py:2",
        py("import torch_xla.distributed.xla_multiprocessing as xmp\nxmp.spawn(f, args=(), nprocs=8)\n"),
        number="nprocs=8",
    ),
    Case("removed-torch-xla", WARN, "job.command", spec={"job__command": f"XRT_TPU_CONFIG=x {SAVES}"}),
    Case(
        "removed-torch-xla",
        WARN,
        "job.command",
        spec={"job__command": f"python3 xla_spawn.py --num_cores 8 {SAVES}"},
    ),
    Case(
        "removed-tensorflow",
        WARN,
        "train.py:2",
        py(TF + "tf.compat.v1.estimator.tpu.TPUEstimator(f)\n"),
        number="2.21",
    ),
    Case(
        "removed-transformers", WARN, "train.py:1", py("from transformers import TFBertModel\n"), number="5"
    ),
    Case(
        "removed-transformers",
        WARN,
        "train.py:3",
        py(HF + "transformers.BertModel.from_pretrained('x', from_tf=True)\n"),
    ),
    Case("env-name-unknown", WARN, "job.env.OUT", spec={"job__env": {"OUT": "$HOME/x"}}, number="$HOME"),
    Case("env-name-unknown", WARN, "job.env.OUT", spec={"job__env": {"OUT": "gs://${BUCKET}"}}),
    Case(
        "doubtful-setting",
        WARN,
        "vm.machine_type",
        spec={"vm__machine_type": "e2-smal"},
        number="no known price",
    ),
    Case("doubtful-setting", WARN, "job.grace", spec={"job__grace": "45s"}, number="30s"),
    Case("dynamic-shape", WARN, "train.py:2", py(TF + "x = tf.where(y)\n")),
    Case("dynamic-shape", WARN, "train.py:2", py(TF + "x = tf.boolean_mask(x, m)\n")),
    Case("dynamic-shape", WARN, "train.py:4", py(XLA + "x = y.nonzero()\n")),
    Case("dynamic-shape", WARN, "train.py:2", py("import jax.numpy as jnp\nx = jnp.unique(y)\n")),
    Case("mask-index", NOTE, "train.py:4", py(XLA + "kept = out[labels >= 0]\n")),
    Case("mask-index", NOTE, "train.py:3", py(TF + "m = labels > 0\nkept = out[m]\n")),
    Case("last-batch", WARN, "train.py:5", py(XLA + LOADER + "DataLoader(d, batch_size=8)\n")),
    Case("last-batch", WARN, "train.py:2", py(TF + "d = tf.data.Dataset.range(9).map(f).batch(8)\n")),
    Case(
        "padding",
        WARN,
        "train.py:3",
        py(HF + "tok(texts, padding=True, truncation=True)\n"),
        number="4 traces",
    ),
    Case("padding", WARN, "train.py:3", py(HF + "DataCollatorWithPadding(tok)\n")),
    Case("host-sync", WARN, "train.py:8", py(XLA + LOOP + "        total += loss.item()\n")),
    Case("host-sync", WARN, "train.py:8", py(XLA + LOOP + "        if loss.cpu() > 3:\n            pass\n")),
    Case("jit-compile", WARN, "train.py:2", py(TF + "model.compile(loss='mse', jit_compile=True)\n")),
    Case(
        "multiple-of-8",
        NOTE,
        "train.py:5",
        py(XLA + LOADER + "DataLoader(d, batch_size=10, drop_last=True)\n"),
        number="16",
    ),
    Case(
        "multiple-of-8", NOTE, "job.command", spec={"job__command": f"{SAVES} --batch-size 10"}, number="16"
    ),
    Case(
        "multiple-of-8",
        NOTE,
        "train.py:3",
        py("import jax\np = parser()\np.add_argument('--batch-size', type=int, default=30)\n"),
        number="32",
    ),
)
