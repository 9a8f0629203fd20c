"""
Make the data: drawn pieces of clothing in ten classes, in the place of Fashion-MNIST, in ./data.

Grey images of 32 x 32 bytes: shapes of ten kinds, moved, stretched and with noise. The same seed gives
the same file. Put your own data/images.npy (count, height, width) and data/labels.npy there instead.
"""

import argparse
from pathlib import Path

import numpy as np

SIZE = 32
CLASSES = 10


def boxes(kind):
    """
    Return the boxes (left, top, right, bottom; from -1 to 1) that draw one kind.
    """
    return (
        ((-0.5, -0.8, 0.5, 0.8), (-0.9, -0.8, 0.9, -0.3)),  # shirt with short sleeves
        ((-0.5, -0.8, -0.1, 0.9), (0.1, -0.8, 0.5, 0.9), (-0.5, -0.8, 0.5, -0.5)),  # trousers
        ((-0.4, -0.8, 0.4, 0.8), (-0.9, -0.8, -0.6, 0.7), (0.6, -0.8, 0.9, 0.7), (-0.9, -0.8, 0.9, -0.5)),
        ((-0.3, -0.9, 0.3, 0.0), (-0.7, 0.0, 0.7, 0.9)),  # dress
        ((-0.6, -0.8, -0.05, 0.9), (0.05, -0.8, 0.6, 0.9)),  # coat, open
        ((-0.9, 0.3, 0.9, 0.6), (0.5, 0.0, 0.9, 0.6)),  # sandal
        ((-0.5, -0.8, 0.5, 0.3), (-0.9, -0.8, 0.9, -0.3)),  # short top
        ((-0.9, 0.2, 0.9, 0.7), (-0.9, -0.1, -0.2, 0.7)),  # sneaker
        ((-0.8, -0.2, 0.8, 0.8), (-0.4, -0.7, -0.3, -0.2), (0.3, -0.7, 0.4, -0.2), (-0.4, -0.7, 0.4, -0.6)),
        ((-0.3, -0.9, 0.2, 0.8), (-0.3, 0.4, 0.9, 0.8)),  # boot
    )[kind]


def draw(kind, rng):
    """
    Return one image of *kind*, moved, stretched and with noise.
    """
    line = (np.arange(SIZE) + 0.5) / SIZE * 2 - 1
    stretch, move = rng.uniform(0.7, 0.95, 2), rng.uniform(-0.1, 0.1, 2)
    x, y = (line[None, :] - move[0]) / stretch[0], (line[:, None] - move[1]) / stretch[1]
    image = np.zeros((SIZE, SIZE))
    for left, top, right, bottom in boxes(kind):
        image[(x >= left) & (x <= right) & (y >= top) & (y <= bottom)] = rng.uniform(120, 230)
    return np.clip(image + rng.normal(0, 20, image.shape), 0, 255).astype(np.uint8)


def main():
    """
    Write both files.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    labels = rng.integers(0, CLASSES, args.count)
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "images.npy", np.stack([draw(kind, rng) for kind in labels]))
    np.save(args.out / "labels.npy", labels)
    print(f"data: {args.count} images of {CLASSES} kinds")


if __name__ == "__main__":
    main()
