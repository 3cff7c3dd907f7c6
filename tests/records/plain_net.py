"""A network of a user's own, which the runs of version 0.1 name."""

from torch import nn


class PlainNet(nn.Module):
    """Two linear layers."""

    head_name = "out"

    def __init__(self, num_classes, input_shape, width=4):
        super().__init__()
        features = input_shape[0] * input_shape[1] * input_shape[2]
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(features, width), nn.ReLU())
        self.out = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.out(self.body(x))
