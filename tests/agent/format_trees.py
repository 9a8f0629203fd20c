"""
Checkpoints of every format, written by hand with the standard library.

Layouts and the order of writing follow the facts that were measured on real runs of the frameworks; the
readers under test were also tried on files of TensorFlow 2.21, Keras 3.15, h5py, PyTorch 2.13, fairseq 0.12
and transformers 5.23 themselves.
"""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

BYTES = bytes(range(256)) * 40


def archive(state=None):
    """Return the bytes of what torch.save writes: a zip with data.pkl and the tensors' storages."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps(state or {}, protocol=2))
        for number in range(3):
            file.writestr(zipfile.ZipInfo(f"archive/data/{number}"), BYTES)
    return buffer.getvalue()


def safetensors():
    """Return a safetensors file: length, header, tensors."""
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "U8", "shape": [len(BYTES)], "data_offsets": [0, len(BYTES)]},
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + BYTES


def h5(version=0, width=8):
    """Return what is read of an HDF5 file: its superblock, with the address of its end."""
    early = version < 2
    fixed = {0: 24, 1: 28, 2: 12, 3: 12}[version]
    head = bytearray(fixed)
    head[:8] = b"\x89HDF\r\n\x1a\n"
    head[8] = version
    head[13 if early else 9] = width
    end = fixed + 4 * width + len(BYTES)
    addresses = [0, 2 ** (8 * width) - 1, end, 0]
    return bytes(head) + b"".join(value.to_bytes(width, "little") for value in addresses) + BYTES


def varint(number):
    """Return a protocol buffer's integer."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def block(pairs):
    """Return a table's block with its trailer: entries, one restart, type 0 and a checksum."""
    body = b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs)
    return body + struct.pack("<II", 0, 1) + b"\0" + bytes(4)


def table(entries):
    """Return a TensorFlow index for tensors {name: (shard, offset, size)}."""
    values = [(b"", b"\x08\x01")]
    for name, (shard, offset, size) in sorted(entries.items()):
        message = b"".join(
            bytes([tag << 3]) + varint(n) for tag, n in ((1, 1), (3, shard), (4, offset), (5, size))
        )
        values.append((name.encode(), message + b"\x35" + bytes(4)))
    data = block(values)
    meta = block([])
    handle = varint(0) + varint(len(data) - 5)
    index = block([(b"z", handle)])
    place = len(data) + len(meta)
    footer = varint(len(data)) + varint(len(meta) - 5) + varint(place) + varint(len(index) - 5)
    return data + meta + index + footer.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


def files(kind, step):
    """Return the files of one save as (name, bytes), in the order in which the framework writes them."""
    if kind == "hf":
        folder = f"checkpoint-{step}"
        state = json.dumps({"global_step": step, "max_steps": 60, "padding": "x" * 2000}).encode()
        parts = {
            "model-00001-of-00002.safetensors": safetensors(),
            "model-00002-of-00002.safetensors": safetensors(),
            "optimizer.pt": archive(),
            "scheduler.pt": archive(),
            "rng_state.pth": archive(),
            "trainer_state.json": state,
        }
        return [(f"{folder}/{name}", data) for name, data in parts.items()]
    if kind == "fairseq":
        data = archive({"optimizer_history": [{"num_updates": step}]})
        return [(f"checkpoint_1_{step}.pt", data)]
    if kind == "tf":
        name = f"ckpt-{step}"
        half = len(BYTES) // 2
        index = table({"a": (0, 0, half), "b": (1, 100, half), "c": (1, 0, 100)})
        return [
            (f"{name}.data-00000-of-00002", BYTES[:half]),
            (f"{name}.data-00001-of-00002", BYTES[: half + 100]),
            (f"{name}.index", index),
            (
                "checkpoint",
                f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'.encode(),
            ),
        ]
    if kind == "keras":
        return [
            ("latest.weights.h5", h5()),
            ("training_metadata.json", json.dumps({"epoch": step, "batch": 0}).encode()),
        ]
    if kind == "torch":
        name = f"step_{step:06d}.pt"
        return [(name, archive()), ("last.json", json.dumps({"step": step, "file": name}).encode())]
    folder = f"{step}" if kind == "orbax" else f"step-{step}"
    last = "commit_success.txt" if kind == "orbax" else "COMPLETE"
    return [(f"{folder}/default/array", BYTES), (f"{folder}/{last}", b"done")]


def write(root, saved):
    """Write files below *root*."""
    for name, data in saved:
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def save(root, kind, step):
    """Write one whole save; orbax renames its folder at the end, the others write in their order."""
    saved = files(kind, step)
    if kind == "orbax":
        staging = f"{step}.orbax-checkpoint-tmp"
        write(root, [(name.replace(str(step), staging, 1), data) for name, data in saved])
        (Path(root) / staging).rename(Path(root) / str(step))
        return
    if kind == "tf" and (Path(root) / "checkpoint").exists():
        older = [
            line for line in (Path(root) / "checkpoint").read_text().splitlines() if line.startswith("all_")
        ]
        name, data = saved[-1]
        saved[-1] = (name, data + "".join(f"{line}\n" for line in older).encode())
    write(root, saved)
    if kind == "fairseq":
        write(root, [("checkpoint_last.pt", saved[0][1])])
