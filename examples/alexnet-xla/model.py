"""
AlexNet in its one-tower form, with its widths divided, so that a rehearsal on two cores is quick.
"""

from torch import nn


def alexnet(classes, divide=1):
    """
    Return AlexNet for images of 3 channels, 63 x 63 or larger; *divide* 1 is the full size.
    """
    a, b, c, d, e, hidden = (n // divide for n in (64, 192, 384, 256, 256, 4096))
    features = nn.Sequential(
        nn.Conv2d(3, a, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(a, b, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(b, c, 3, padding=1), nn.ReLU(),
        nn.Conv2d(c, d, 3, padding=1), nn.ReLU(),
        nn.Conv2d(d, e, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(6), nn.Flatten(),
    )  # fmt: skip
    head = nn.Sequential(
        nn.Dropout(), nn.Linear(e * 36, hidden), nn.ReLU(),
        nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, classes),
    )  # fmt: skip
    return nn.Sequential(features, head)
