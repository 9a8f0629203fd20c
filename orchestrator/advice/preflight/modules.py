"""Which package brings which module, for the usual ones; the image of a TPU machine has none of them."""

from typing import Final

PACKAGES: Final = {
    "torch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "torch_xla": "torch-xla",
    "numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "jax": "jax", "jaxlib": "jaxlib", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint",
    "chex": "chex", "haiku": "dm-haiku", "equinox": "equinox", "grain": "grain", "clu": "clu",
    "ml_collections": "ml-collections", "absl": "absl-py", "einops": "einops", "tensorstore": "tensorstore",
    "tensorflow": "tensorflow", "tensorflow_datasets": "tensorflow-datasets", "keras": "keras",
    "tf_keras": "tf-keras", "transformers": "transformers", "datasets": "datasets",
    "tokenizers": "tokenizers",
    "accelerate": "accelerate", "peft": "peft", "trl": "trl", "evaluate": "evaluate",
    "diffusers": "diffusers",
    "safetensors": "safetensors", "huggingface_hub": "huggingface-hub", "sentencepiece": "sentencepiece",
    "tiktoken": "tiktoken", "lightning": "lightning", "pytorch_lightning": "pytorch-lightning",
    "torchmetrics": "torchmetrics", "timm": "timm", "wandb": "wandb", "tensorboard": "tensorboard",
    "tensorboardX": "tensorboardx", "tqdm": "tqdm", "yaml": "pyyaml", "PIL": "pillow",
    "cv2": "opencv-python",
    "requests": "requests", "hydra": "hydra-core", "omegaconf": "omegaconf", "fire": "fire", "rich": "rich",
    "joblib": "joblib", "h5py": "h5py", "gcsfs": "gcsfs", "fsspec": "fsspec", "fairseq": "fairseq",
    "nltk": "nltk", "spacy": "spacy", "xgboost": "xgboost", "lightgbm": "lightgbm",
    "gymnasium": "gymnasium",
    "pyarrow": "pyarrow", "tyro": "tyro", "simple_parsing": "simple-parsing", "webdataset": "webdataset",
}  # fmt: skip
"""
The package that brings a module. A module that is missing here is not judged.
"""

_HUB: Final = frozenset({"huggingface-hub", "requests", "tqdm", "pyyaml", "fsspec"})
_HF: Final = frozenset({"numpy", "tokenizers", "safetensors", *_HUB})
_JAX: Final = frozenset({"jaxlib", "numpy", "scipy"})
_FLAX: Final = frozenset({
    "jax", "optax", "orbax-checkpoint", "tensorstore", "absl-py", "chex", "rich", "pyyaml", *_JAX,
})  # fmt: skip
_KERAS: Final = frozenset({"numpy", "absl-py", "rich", "h5py"})
_TORCH: Final = frozenset({"fsspec"})
BRINGS: Final = {
    "torch-xla": frozenset({"torch", "absl-py", "numpy", "pyyaml", "requests"}), "torch": _TORCH,
    "torchvision": frozenset({"torch", "numpy", "pillow", *_TORCH}), "torchaudio": frozenset({"torch"}),
    "scipy": frozenset({"numpy"}), "pandas": frozenset({"numpy"}), "h5py": frozenset({"numpy"}),
    "scikit-learn": frozenset({"numpy", "scipy", "joblib"}), "matplotlib": frozenset({"numpy", "pillow"}),
    "jax": _JAX, "jaxlib": frozenset({"numpy", "scipy"}), "flax": _FLAX,
    "optax": frozenset({"jax", "chex", "absl-py", *_JAX}), "chex": frozenset({"jax", "absl-py", *_JAX}),
    "orbax-checkpoint": frozenset({"jax", "absl-py", "tensorstore", "pyyaml", *_JAX}),
    "dm-haiku": frozenset({"absl-py", "numpy"}), "equinox": frozenset({"jax", *_JAX}),
    "clu": _FLAX | {"flax", "ml-collections"}, "ml-collections": frozenset({"absl-py", "pyyaml"}),
    "grain": frozenset({"numpy", "absl-py"}),
    "tensorflow": frozenset({"numpy", "keras", "absl-py", "h5py", "requests", "tensorboard", *_KERAS}),
    "tensorflow-datasets": frozenset({"numpy", "absl-py", "requests", "tqdm", "pyarrow", "etils"}),
    "keras": _KERAS, "tf-keras": frozenset({"tensorflow", "numpy", *_KERAS}), "transformers": _HF,
    "tokenizers": _HUB, "datasets": frozenset({"numpy", "pandas", "pyarrow", *_HUB}),
    "accelerate": frozenset({"torch", *_HF}), "peft": frozenset({"torch", "transformers",
    "accelerate", *_HF}),
    "trl": frozenset({"torch", "transformers", "accelerate", "datasets", "pandas", "pyarrow", *_HF}),
    "evaluate": frozenset({"datasets", "numpy", "pandas", "pyarrow", *_HUB}),
    "diffusers": frozenset({"numpy", "pillow", "safetensors", *_HUB}), "huggingface-hub": _HUB,
    "lightning": frozenset({"torch", "pytorch-lightning", "torchmetrics", "tqdm", "pyyaml",
    "fsspec", "numpy"}),
    "pytorch-lightning": frozenset({"torch", "torchmetrics", "tqdm", "pyyaml", "fsspec", "numpy"}),
    "torchmetrics": frozenset({"torch", "numpy"}), "wandb": frozenset({"pyyaml", "requests"}),
    "timm": frozenset({"torch", "torchvision", "pillow", "numpy", "safetensors", *_HUB}),
    "tensorboard": frozenset({"numpy", "absl-py"}), "hydra-core": frozenset({"omegaconf", "pyyaml"}),
    "tensorboardx": frozenset({"numpy"}), "gymnasium": frozenset({"numpy"}),
    "omegaconf": frozenset({"pyyaml"}), "gcsfs": frozenset({"fsspec", "requests"}),
    "tiktoken": frozenset({"requests"}),
    "opencv-python": frozenset({"numpy"}), "xgboost": frozenset({"numpy", "scipy"}),
    "lightgbm": frozenset({"numpy", "scipy"}), "nltk": frozenset({"tqdm", "joblib"}),
    "fairseq": frozenset({"torch", "torchaudio", "numpy", "hydra-core", "omegaconf", "tqdm", "pyyaml"}),
    "spacy": frozenset({"numpy", "requests", "tqdm"}), "webdataset": frozenset({"numpy", "pyyaml"}),
}  # fmt: skip
"""
What a package installs with itself, of those above.
"""

TWINS: Final = {
    "tensorflow-cpu": "tensorflow", "tensorflow-tpu": "tensorflow", "tf-nightly": "tensorflow",
    "opencv-python-headless": "opencv-python", "scikit-learn-intelex": "scikit-learn",
    "orbax": "orbax-checkpoint",
    "tensorflow-cpu-aws": "tensorflow", "tfds-nightly": "tensorflow-datasets", "libtpu": "libtpu",
    "sklearn": "scikit-learn",
}  # fmt: skip
"""
Packages that bring the module of another.
"""
OTHERS: Final = frozenset({
    "pip", "setuptools", "wheel", "uv", "libtpu", "ninja", "packaging", "pytest", "ruff", "black", "protobuf",
})  # fmt: skip
"""
Packages that bring nothing of the above.
"""
