"""For each rule: what only looks like its mistake, so that it must be silent."""

from tests.advice.check_cases import FAIRSEQ, HEX, HF, LOADER, LOOP, SAVES, TF, V3, XLA, Case, py

SILENT = (
    Case(
        "requirements-file-missing",
        files={"requirements.txt": "numpy\n", "a/b.in": ""},
        spec={"job__setup": "pip install -r ./requirements.txt -ca/b.in"},
    ),
    Case(
        "requirements-file-missing",
        spec={"job__setup": "pip install -r /opt/a.txt -c $HOME/b.txt -c ../c.txt"},
    ),
    Case("requirements-file-missing", spec={"job__setup": "echo numpy > a.txt; pip install -r a.txt"}),
    Case("requirements-file-missing", spec={"job__setup": "pip install -r https://example.com/a.txt"}),
    Case(
        "requirements-file-missing",
        spec={"job__setup": "pip install -r a.txt", "job__image": "europe-docker.pkg.dev/p/r/train:1"},
    ),
    Case("program-missing", files=py("x = 1\n")),
    Case("program-missing", files=py("def broken(:\n")),
    Case("program-missing", files={"src/train.py": "x = 1\n"}),
    Case("program-missing", spec={"job__setup": "git clone https://example.com/x ."}),
    Case("program-missing", spec={"job__command": "cd /opt/nanoGPT && python3 train.py"}),
    Case("program-missing", spec={"job__command": "python3 /opt/train.py; python3 -m train"}),
    Case("program-missing", spec={"job__image": "europe-docker.pkg.dev/p/r/train:1"}),
    Case("program-missing", spec={"job__command": "echo 'x = 1' > train.py; python3 train.py"}),
    Case("wide-account", spec={"watch__ttl": "2h"}),
    Case("open-notebook", files={"start.sh": "jupyter lab --ip=127.0.0.1 --ServerApp.token=$TOKEN\n"}),
    Case(
        "open-notebook",
        files={"start.sh": "# never: jupyter lab --ServerApp.token=\nuvicorn a --ip 0.0.0.0\n"},
    ),
    Case("open-notebook", files={"README.md": "jupyter --ServerApp.token= must not be copied\n"}),
    Case(
        "secret-in-env",
        spec={"job__env": {"GIT_COMMIT": HEX, "TOKENIZERS_PARALLELISM": "false", "HF_TOKEN": "$T"}},
    ),
    Case(
        "key-in-source",
        files={
            "look.py": 'KEY = re.compile("-----BEGIN [A-Z ]*PRIVATE KEY-----")\nSTART = "hf_"\n',
            ".env.example": "HF_TOKEN=\n",
            "id_map.json": "{}",
        },
    ),
    Case("no-save", files=py("import torch\ntorch.save(m, p)\n")),
    Case("no-save", files={"train.py": "import model\n", "model.py": "def f():\n    x.save_pretrained(d)\n"}),
    Case("no-save", files=py("from transformers import Trainer\nTrainer(model).train()\n")),
    Case("no-save", files=py("import numpy as np\nnp.memmap('x', mode='w+')\n")),
    Case("no-save", files=py("import some_trainer\nsome_trainer.run()\n")),
    Case("no-save", files=py("with open(path, 'wb') as f:\n    pass\n")),
    Case("no-save", files={"other.py": "x = 1\n"}, spec={"job__command": "python3 -m trl.scripts.sft"}),
    Case(
        "no-save", files={"train.py": "x = 1\n"}, spec={"job__command": "python3 train.py && python3 gone.py"}
    ),
    Case("no-load", files=py("import numpy as np\nw = np.load(p)\nfor n in r:\n    np.save(p, w)\n")),
    Case("no-load", files=py("import torch, keras\nfor x in d:\n    m.fit(x)\n    torch.save(m, p)\n")),
    Case("no-load", files=py("import torch\nm = build()\ntorch.save(m, p)\n")),
    Case("no-load", files=py("import pickle\nm = open(p, 'rb')\nfor n in r:\n    pickle.dump(m, f)\n")),
    Case(
        "no-load",
        files=py("import torch\nfor x in data:\n    step(x)\n    torch.save(m, p)\n"),
        spec={"job__checkpoint__format": "outputs"},
    ),
    Case(
        "late-save",
        files=py("import torch\nfor x in data:\n    step(x)\n    torch.save(m, p)\ntorch.save(m, q)\n"),
    ),
    Case(
        "late-save",
        files=py(
            "import torch\ndef keep():\n    torch.save(m, p)\nfor x in data:\n    keep()\ntorch.save(m, q)\n"
        ),
    ),
    Case(
        "late-save",
        files=py(
            "import torch\ndef epoch():\n    for x in data:\n        step(x)\n    torch.save(m, p)\n"
            "for n in range(9):\n    epoch()\n"
        ),
    ),
    Case("late-save", files=py("import torch\nm = build()\ntorch.save(m, p)\n")),
    Case("late-save", files=py("import torch, keras\nfor x in d:\n    m.fit(x)\ntorch.save(m, p)\n")),
    Case(
        "late-save",
        files=py("import torch\nfor x in data:\n    step(x)\ntorch.save(m, p)\n"),
        spec={"job__checkpoint__format": "outputs"},
    ),
    Case(
        "relative-save",
        files=py("import os, torch\nout_dir = 'out'\ntorch.save(m, os.path.join(out_dir, 'x'))\n"),
        spec={"job__command": 'python3 train.py --out_dir="$TPUCTL_CHECKPOINT_DIR"'},
    ),
    Case(
        "relative-save",
        files=py("import torch\ntorch.save(m, 'm.pt')\n"),
        spec={"job__command": 'cd "$TPUCTL_CHECKPOINT_DIR" && python3 ~/train.py'},
    ),
    Case("relative-save", files={"tool.py": "import torch\ntorch.save(m, 'm.pt')\n", "train.py": "x = 1\n"}),
    Case("relative-save", files=py("import torch\nnp.save('c.npy', a)\ntorch.save(m, args.out)\n")),
    Case(
        "backup-deleted",
        files=py("import keras\nkeras.callbacks.BackupAndRestore(d, delete_checkpoint=False)\n"),
    ),
    Case("backup-deleted", files=py("import keras\nkeras.callbacks.BackupAndRestore(**options)\n")),
    Case(
        "marker-never-written",
        files=py("import numpy as np\nnp.savez(p, w=w)\n(d / 'COMPLETE').touch()\n"),
        spec={"job__checkpoint": {"format": "marker"}},
    ),
    Case(
        "marker-never-written",
        files=py("accelerator.save_state(d)\n"),
        spec={"job__checkpoint": {"format": "marker", "marker": "random_states_0.pkl"}},
    ),
    Case(
        "marker-never-written", files=py("torch.save(m, p)\n"), spec={"job__checkpoint": {"format": "torch"}}
    ),
    Case(
        "hollow-resume",
        spec={
            "job__command": 'python3 t.py ${TPUCTL_RESUME:+--resume_from_checkpoint "$TPUCTL_RESUME"} '
            '--resume "$TPUCTL_RESUME" --from=$TPUCTL_RESUME'
        },
    ),
    Case("hollow-resume", files={"other.sh": "x --resume $TPUCTL_RESUME\n"}),
    Case(
        "data-excluded",
        files={".gitignore": "*.bin\n", "data/a.bin": "x", **py("open('data/a.bin')\nopen('o.bin', 'wb')\n")},
        spec={"job__data": {"data": "./data"}},
    ),
    Case(
        "data-excluded",
        files={
            ".gitignore": "out/\n*.bin\n",
            "out/log": "x",
            "data/a.bin": "x",
            **py("import os\nopen('out/log', 'w')\nopen(os.path.join('data', x))\nopen('data/b.txt')\n"),
        },
    ),
    Case(
        "missing-requirement",
        files={
            **py(
                "import os, torch, numpy, local_part\nfrom pkg.inner import x\nimport unheard_of\n"
                "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n"
                "def late():\n    import tiktoken\n"
            ),
            "local_part.py": "x = 1\n",
            "pkg/inner.py": "x = 1\n",
            "requirements.txt": "torchvision==0.28.0\n",
        },
        spec={"job__setup": "pip install -r requirements.txt"},
    ),
    Case(
        "missing-requirement", files=py("import torch\n"), spec={"job__setup": "conda env update -f env.yml"}
    ),
    Case(
        "missing-requirement",
        files={**py("import jax, optax, numpy\n"), "pyproject.toml": 'dependencies = ["flax>=0.12"]\n'},
        spec={"job__setup": "pip install ."},
    ),
    Case(
        "missing-requirement",
        files={**py("import torch\n"), "requirements.txt": "torch==2.13.0\n"},
        spec={"job__command": f"tpuctl-venv -r requirements.txt -- {SAVES}"},
    ),
    Case(
        "data-room",
        files={".tpuctlignore": "/a\n/b\n", "a": 40_000_000_000, "b": 90_000_000_000},
        spec={"job__data": {"d": "./a", "c4": "gs://b/c4"}},
    ),
    Case(
        "missing-requirement",
        files=py("import tensorflow\n"),
        spec={"tpu__runtime": "tpu-vm-tf-2.19.0-pjrt", "job__setup": "pip install tqdm"},
    ),
    Case(
        "checkpoint-dir-unused",
        files=py("import os\nos.environ['TPUCTL_CHECKPOINT_DIR']"),
        spec={"job__command": "python3 train.py"},
    ),
    Case("checkpoint-dir-unused", files=py("print 1"), spec={"job__command": "python2 train.py"}),
    Case("checkpoint-dir-unused", spec={"job__command": "./train", "job__checkpoint": {"dir": "/data/ckpt"}}),
    Case("save-elsewhere", spec={"job__command": "x --output_dir $TPUCTL_CHECKPOINT_DIR/a"}),
    Case(
        "save-elsewhere",
        spec={"job__command": "x --output_dir /data/ckpt/a", "job__checkpoint": {"dir": "/data/ckpt"}},
    ),
    Case("save-elsewhere", spec={"job__command": "x --output_dir ./a", "job__run_on": "vm"}),
    Case("save-elsewhere", files={"prepare.sh": "python3 tokenize.py --output_dir ./tok\n"}),
    Case(
        "write-lost",
        files=py(
            "import torch\ntorch.load('/tmp/x')\nopen('/tmp/x')\nMNIST('/tmp/data')\ntorch.save(m, out)\n"
        ),
    ),
    Case(
        "write-lost", files=py("open('/data/ckpt/x', 'w')\n"), spec={"job__checkpoint": {"dir": "/data/ckpt"}}
    ),
    Case("bucket-not-a-folder", spec={"job__command": f"{SAVES} --output_dir gs://b/o"}),
    Case(
        "summary-writer-gs",
        files=py(TF + "from torch.utils.tensorboard import SummaryWriter\nSummaryWriter('gs://b/r')\n"),
    ),
    Case(
        "summary-writer-gs",
        files=py("from torch.utils.tensorboard import SummaryWriter\nSummaryWriter('runs')\n"),
    ),
    Case("save-interval", spec={"job__checkpoint": {"every": "3m", "save_pause": 5}}),
    Case("save-interval", spec={"job__checkpoint": {"every": "60m"}, "tpu__spot": False}),
    Case("core-memory", spec={**V3, "job__memory": {"params_millions": 125, "activations_gb": 10}}),
    Case("core-memory", spec={**V3, "job__memory": {"params_millions": 1500, "shards": 8}}),
    Case("core-memory", spec={**V3, "job__memory": {"params_millions": 1500, "optimizer": "adafactor"}}),
    Case("core-memory", spec={**V3, "job__memory": {"params_millions": 1500, "dtype": "bf16"}}),
    Case("disk-room", files=py("import datasets"), spec={"job__memory": {"text_gb": 2}}),
    Case(
        "disk-room",
        files=py("import datasets\ndatasets.load_dataset('x', streaming=True)"),
        spec={"job__memory": {"text_gb": 20}},
    ),
    Case("disk-room", files=py("import numpy"), spec={"job__memory": {"text_gb": 60}}),
    Case("fairseq-memory", spec={**V3, "job__command": FAIRSEQ, "job__memory": {"text_gb": 20}}),
    Case(
        "fairseq-memory",
        spec={**V3, "job__command": FAIRSEQ.replace("--tpu", "--cpu"), "job__memory": {"text_gb": 25}},
    ),
    Case(
        "tokenizer-memory",
        files=py("from tokenizers import BertWordPieceTokenizer as B\nB()\n"),
        spec={**V3, "job__memory": {"text_gb": 20}},
    ),
    Case("installed-anew", spec={"job__setup": "apt-get update; pip install numpy==2.2.6"}),
    Case("installed-anew", spec={"job__setup": "conda create -p /c", "job__caches": ("/c",)}),
    Case("python-pin", files={"requirements.txt": "numpy==2.2.6\nnumpy>=2.4\nunknown==99\n"}),
    Case("python-pin", files={"requirements.txt": 'numpy==2.4.6; python_version >= "3.11"\n'}),
    Case("python-pin", files={"requirements.txt": "numpy==2.4.6\n"}, spec={"job__python": "3.12"}),
    Case("python-pin", files={"requirements.txt": "numpy==2.4.6\n"}, spec={"job__run_on": "vm"}),
    Case(
        "unpinned-torch",
        spec={
            "job__setup": "pip install torch==2.13.0 torchvision && pip install torch --index-url https://x/whl/cpu"
        },
    ),
    Case(
        "unpinned-torch",
        files={"requirements.txt": "torch==2.13.0\n# torch\ntorch_xla==2.13.0\n-r more.txt\n"},
    ),
    Case(
        "torch-xla-pair",
        files={
            "requirements.txt": "torch==2.9.1\ntorch_xla==2.9.0\n",
            "requirements-b.txt": "torch==2.13.0\n",
        },
    ),
    Case(
        "removed-torch-xla", files={**py(XLA + "xm.get_ordinal()\n"), "requirements.txt": "torch_xla==1.13\n"}
    ),
    Case(
        "removed-torch-xla",
        files=py("import torch_xla.distributed.xla_multiprocessing as xmp\nxmp.spawn(f, nprocs=None)\n"),
    ),
    Case("removed-torch-xla", files=py("import mine as xm\nxm.get_ordinal()\n")),
    Case("removed-torch-xla", spec={"job__command": f"echo $XRT_TPU_CONFIG; {SAVES}", "job__run_on": "vm"}),
    Case(
        "removed-tensorflow",
        files={**py(TF + "tf.estimator.Estimator(f)\n"), "requirements.txt": "tensorflow==1.15.5\n"},
    ),
    Case(
        "removed-transformers",
        files={**py("from transformers import TFBertModel\n"), "requirements.txt": "transformers==4.57.6\n"},
    ),
    Case("removed-transformers", files=py("from transformers import Trainer, TrainingArguments\n")),
    Case("dynamic-shape", files=py(TF + "x = tf.where(m, a, b)\ny = tf.cast(m, tf.float32)\n")),
    Case("dynamic-shape", files=py("import torch, numpy as np\nx = torch.nonzero(y)\nnp.unique(y)\n")),
    Case(
        "dynamic-shape", files=py("import jax.numpy as jnp\nx = jnp.unique(y, size=8)\njnp.where(m, a, b)\n")
    ),
    Case("mask-index", files=py("import numpy as np\nkept = out[labels >= 0]\n")),
    Case(
        "mask-index",
        files=py(
            TF + "import numpy as np\nout = np.load('x')\nkept = out[out >= 0]\ny = d['a']\nx[y > 0] = 1\n"
        ),
    ),
    Case("last-batch", files=py("import torch\n" + LOADER + "DataLoader(d, batch_size=8)\n")),
    Case(
        "last-batch",
        files=py(
            XLA
            + LOADER
            + "DataLoader(d, 8, drop_last=True)\nDataLoader(d, batch_sampler=s)\nDataLoader(d, **k)\n"
        ),
    ),
    Case("last-batch", files=py(TF + "d = tf.data.Dataset.range(9).repeat().batch(8)\n")),
    Case(
        "last-batch",
        files=py(
            TF + "import corpus\ncorpus.batch(t, 1, seed=0)\nd = tf.data.Dataset.range(9).batch(8, True)\n"
        ),
    ),
    Case(
        "padding",
        files=py(
            HF + "tok(t, padding=True, pad_to_multiple_of=64)\ntok(t, padding='max_length', max_length=64)\n"
        ),
    ),
    Case("padding", files=py("import torch\nmake(padding=True)\n")),
    Case("host-sync", files=py(XLA + LOOP + "        if i % 100 == 0:\n            print(loss.item())\n")),
    Case(
        "host-sync", files=py(XLA + "def test():\n    for x in loader:\n        n += (y == x).sum().item()\n")
    ),
    Case(
        "host-sync",
        files=py(
            XLA
            + "for n in range(9):\n    for x in loader:\n        loss.backward()\n    print(loss.item())\n"
        ),
    ),
    Case("host-sync", files=py("import torch\n" + LOOP + "        total += loss.item()\n")),
    Case("env-name-unknown", spec={"job__env": {"OUT": "gs://$TPUCTL_BUCKET/${ZONE}/$$HOME", "N": "5 $"}}),
    Case("doubtful-setting", spec={"vm__machine_type": "e2-small", "job__grace": "20s"}),
    Case("jit-compile", files=py(TF + "model.compile(loss='mse', jit_compile=False)\n")),
    Case(
        "multiple-of-8",
        files=py(
            XLA + LOADER + "DataLoader(d, batch_size=64, drop_last=True)\nDataLoader(d, batch_size=1)\n"
        ),
    ),
    Case(
        "multiple-of-8",
        files=py("import sklearn\nfit(batch_size=10)\n"),
        spec={"job__command": f"{SAVES} --batch-size 16"},
    ),
)
