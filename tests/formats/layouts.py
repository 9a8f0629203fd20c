"""
Layouts of checkpoints as the frameworks write them: small files of ours, in the frameworks' order of writing.

tests/recipes/test_real_saves.py holds what the code knows against saves of the frameworks themselves.
"""

import gzip
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.agent.format_trees import BYTES, archive, h5, safetensors, table

Save = list[tuple[str, bytes]]


@dataclass(frozen=True)
class SaveLayout:
    """
    Describe one layout. *write* returns a save's files in the order of writing.

    *format* is what `auto` shall call it, *tells* whether the save itself contains its step, *bucket* why no
    program writes it straight to a bucket (empty: some do). *proves*: its own structure shows a cut file.
    *copies*: the first file is a whole save, the others are copies of it.
    """

    name: str
    format: str
    write: Callable[[int], Save]
    tells: bool = True
    bucket: str = ""
    proves: bool = True
    resumable: bool = True
    in_place: bool = False
    copies: bool = False


def npy(number: int | None = None) -> bytes:
    """Return an array of numpy: BYTES, or one number."""
    kind, shape, body = ("<u1", f"({len(BYTES)},)", BYTES) if number is None else ("<i8", "()", b"")
    kind = kind.replace("<u1", "|u1")
    if number is not None:
        body = struct.pack("<q", number)
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header = header.ljust((len(header) + 11 + 63) // 64 * 64 - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def npz(step: int | None) -> bytes:
    """Return an archive of numpy, with the step in it or not."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(zipfile.ZipInfo("weights.npy"), npy())
        if step is not None:
            file.writestr(zipfile.ZipInfo("step.npy"), npy(step))
    return buffer.getvalue()


def msgpack(step: int) -> bytes:
    """Return what flax's older checkpoints are: a map with the step and an array of bytes."""
    head = b"\x82\xa4step\xce" + struct.pack(">I", step)
    return head + b"\xa6params\xc6" + struct.pack(">I", len(BYTES)) + BYTES


def joblib(step: int) -> bytes:
    """Return what joblib.dump writes: a pickle with the bytes of an array behind its description."""
    key = pickle.dumps({"epoch": step}, protocol=2)[2:-1]
    kind = b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R"
    length = pickle.dumps((len(BYTES),), protocol=2)[2:-1]
    state = b"}(X\x05\x00\x00\x00shape" + length + b"X\x05\x00\x00\x00dtype" + kind + b"u"
    array = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81" + state + b"b" + BYTES
    return b"\x80\x02" + key + array + b"\x86."


def xgboost(step: int) -> bytes:
    """Return what xgboost's save_model writes as JSON."""
    return json.dumps({"learner": {"weights": [step] * 500}, "version": [3, 2, 0]}).encode()


def old_torch(state: object) -> bytes:
    """Return what torch.save wrote before 1.6: pickles, then the tensors' bytes."""
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, state, []]
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)


def orbax(folder: str, item: str = "default/") -> Callable[[int], Save]:
    """Return the writer of Orbax in place: metadata without a commit, arrays, metadata with it, commit file."""

    def write(step: int) -> Save:
        top = folder.format(step=step)
        begun = json.dumps({"init_timestamp_nsecs": step, "commit_timestamp_nsecs": None}).encode()
        return [
            (f"{top}/_CHECKPOINT_METADATA", begun),
            (f"{top}/{item}_METADATA", b"{}"),
            (f"{top}/{item}d/0", BYTES),
            (f"{top}/{item}manifest.ocdbt", b"manifest"),
            (f"{top}/commit_success.txt", b"Checkpoint commit was successful"),
        ]

    return write


def hugging_face(weights: str, *, resumable: bool = True) -> Callable[[int], Save]:
    """Return the writer of the Trainer."""

    def write(step: int) -> Save:
        top = f"checkpoint-{step}"
        state = json.dumps({"global_step": step, "max_steps": 60, "x": "x" * 2000}).encode()
        rest = [(f"{top}/{name}", archive()) for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")]
        return [
            (f"{top}/{weights}", safetensors()),
            *(rest if resumable else []),
            (f"{top}/trainer_state.json", state),
        ]

    return write


def accelerate(step: int) -> Save:
    """Write what `save_state` does."""
    top = f"step_{step}"
    return [
        (f"{top}/model.safetensors", safetensors()),
        (f"{top}/optimizer.bin", archive()),
        (f"{top}/scheduler.bin", archive()),
        (f"{top}/random_states_0.pkl", archive({"step": step})),
    ]


def lightning(step: int) -> Save:
    """Write what ModelCheckpoint does with save_last."""
    state = {"epoch": step // 10, "global_step": step, "state_dict": {}}
    return [(f"epoch={step // 10}-step={step}.ckpt", archive(state)), ("last.ckpt", archive(state))]


def tf(step: int) -> Save:
    """Write what tf.train.Checkpoint does."""
    name = f"ckpt-{step}"
    return [
        (f"{name}.data-00000-of-00001", BYTES),
        (f"{name}.index", table({"a": (0, 0, len(BYTES))})),
        ("checkpoint", f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'.encode()),
    ]


def one(name: str, data: Callable[[int], bytes]) -> Callable[[int], Save]:
    """Return the writer of one file."""
    return lambda step: [(name.format(step=step), data(step))]


def pickled(**more: object) -> Callable[[int], bytes]:
    """Return the writer of a zip of torch.save with the step under a name."""
    return lambda step: archive({key: step if value is None else value for key, value in more.items()})


def several(*files: tuple[str, Callable[[int], bytes]]) -> Callable[[int], Save]:
    """Return the writer of several files."""
    return lambda step: [(name.format(step=step), data(step)) for name, data in files]


def _meta(step: int) -> bytes:
    return json.dumps({"step": step}).encode()


def _pointer(step: int) -> bytes:
    return json.dumps({"step": step, "file": f"step_{step:06d}.pt"}).encode()


def _fairseq(step: int) -> bytes:
    return archive({"optimizer_history": [{"num_updates": step}]})


def _bytes(_step: int) -> bytes:
    return BYTES


_LOCAL = "writes to a disk only"

LAYOUTS: Sequence[SaveLayout] = (
    SaveLayout("Hugging Face Trainer, full", "hf", hugging_face("model.safetensors"), bucket=_LOCAL),
    SaveLayout("Hugging Face Trainer, LoRA", "hf", hugging_face("adapter_model.safetensors"), bucket=_LOCAL),
    SaveLayout("Hugging Face Trainer, save_only_model", "", hugging_face("model.safetensors", resumable=False),
           bucket=_LOCAL, resumable=False),
    SaveLayout("Orbax, default and v1", "orbax", orbax("{step}")),
    SaveLayout("Orbax, fixed length", "orbax", orbax("{step:08d}")),
    SaveLayout("Orbax, step_prefix; Kauldron", "orbax", orbax("ckpt_{step}")),
    SaveLayout("Orbax, CommitFileTemporaryPath", "orbax", orbax("{step}", "state/")),
    SaveLayout("Orbax, BASE/RUN/checkpoints; MaxText", "orbax", orbax("run1/checkpoints/{step}", "items/")),
    SaveLayout("Keras OrbaxCheckpoint", "orbax", orbax("{step}", "pytree/")),
    SaveLayout("flax legacy, Orbax", "orbax", orbax("checkpoint_{step}", "")),
    SaveLayout("flax legacy, msgpack", "files", one("checkpoint_{step}", msgpack)),
    SaveLayout("Lightning, flat and last.ckpt", "files", lightning, copies=True),
    SaveLayout("Lightning, {step}/model.ckpt", "files", one("{step}/model.ckpt", pickled(global_step=None))),
    SaveLayout("Lightning, lightning_logs", "files",
           one("lightning_logs/version_0/checkpoints/epoch=0-step={step}.ckpt", pickled(global_step=None))),
    SaveLayout("accelerate save_state", "accelerate", accelerate, bucket=_LOCAL),
    SaveLayout("torch.save, numbered", "files", one("model_{step:06d}.pt", pickled())),
    SaveLayout("torch.save, replaced in place; nanoGPT", "files", one("ckpt.pt", pickled(iter_num=None)),
           in_place=True),
    SaveLayout("torch.save, no step told; minGPT snapshot.pt", "files", one("snapshot.pt", pickled(x=None)),
           tells=False, in_place=True),
    SaveLayout("torch.save, checkpoint.pth.tar and model_best.pth.tar", "files",
           several(("checkpoint.pth.tar", pickled(epoch=None)), ("model_best.pth.tar", pickled(epoch=None))),
           in_place=True),
    SaveLayout("torch.save before 1.6", "files", one("net_{step}.pth", lambda step: old_torch({"epoch": step}))),
    SaveLayout("torch, numbered with last.json", "torch",
           several(("step_{step:06d}.pt", pickled()),
                   ("last.json", _pointer)),
           bucket=_LOCAL),
    SaveLayout("torch.distributed.checkpoint", "dcp",
           several(("step-{step}/__0_0.distcp", _bytes), ("step-{step}/.metadata", _bytes)),
           proves=False),
    SaveLayout("nanochat: model, optim, meta", "files",
           several(("d4/model_{step:06d}.pt", pickled()), ("d4/optim_{step:06d}_rank0.pt", pickled()),
                   ("d4/meta_{step:06d}.json", _meta))),
    SaveLayout("safetensors", "files", one("model-{step}.safetensors", lambda _: safetensors())),
    SaveLayout("numpy npz, numbered", "files", one("ckpt_{step:06d}.npz", npz)),
    SaveLayout("numpy npz, replaced in place", "files", one("state.npz", npz), in_place=True),
    SaveLayout("numpy npy", "files", one("weights_{step}.npy", lambda _: npy())),
    SaveLayout("joblib.dump; scikit-learn", "files", one("model_epoch{step}.joblib", joblib)),
    SaveLayout("pickle.dump, gzipped", "files",
           one("state_{step}.pkl.gz", lambda step: gzip.compress(pickle.dumps([step, BYTES]), mtime=0))),
    SaveLayout("xgboost model.json", "files", one("model.json", xgboost), tells=False, in_place=True),
    SaveLayout("JSON of a program of one's own", "files",
           one("step_{step}.json", lambda step: json.dumps({"w": [0.5] * 9, "step": step}).encode())),
    SaveLayout("LightGBM, numbered text", "files", one("lgb_{step}.txt", lambda step: b"tree\n" * 500),
           proves=False),
    SaveLayout("Stable-Baselines3: policy, replay buffer", "files",
           several(("rl_model_{step}_steps.zip", pickled()),
                   ("rl_model_replay_buffer_{step}_steps.pkl", lambda step: pickle.dumps([step, BYTES])))),
    SaveLayout("PaddlePaddle", "files",
           several(("epoch_{step}.pdparams", pickle.dumps), ("epoch_{step}.pdopt", pickle.dumps))),
    SaveLayout("spaCy model-last", "files",
           several(("model-last/ner/model", lambda step: BYTES + bytes([step])),
                   ("model-last/vocab/vectors", _bytes), ("model-last/meta.json", lambda _: b"{}")),
           tells=False, proves=False, in_place=True),
    SaveLayout("Orbax, one folder saved over", "orbax", orbax("state"), tells=False, in_place=True),
    SaveLayout("Keras BackupAndRestore", "keras",
           several(("latest.weights.h5", lambda _: h5()),
                   ("training_metadata.json", lambda step: json.dumps({"epoch": step}).encode())),
           in_place=True),
    SaveLayout("Keras .keras", "files", one("m-{step:02d}.keras", lambda _: archive())),
    SaveLayout("Keras .weights.h5", "files", one("m-{step:02d}.weights.h5", lambda _: h5())),
    SaveLayout("Levanter", "levanter",
           several(("run1/step-{step}/model/w", _bytes), ("run1/step-{step}/opt_state/w", _bytes),
                   ("run1/step-{step}/metadata.json", _meta)), proves=False),
    SaveLayout("fairseq", "fairseq",
           several(("checkpoint_1_{step}.pt", _fairseq),
                   ("checkpoint_last.pt", _fairseq)),
           bucket=_LOCAL, copies=True),
    SaveLayout("TensorFlow Checkpoint, Estimator", "tf", tf),
    SaveLayout("marker", "marker",
           several(("step-{step}/weights", lambda _: BYTES), ("step-{step}/COMPLETE", lambda _: b"done")),
           proves=False),
)  # fmt: skip


def steps(layout: SaveLayout) -> Iterator[Save]:
    """Yield two saves, one after the other."""
    yield layout.write(20)
    yield layout.write(40)
