"""ResNet-18 for the last column of the practical table."""

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet


class ResNet18(ResNet):
    """Torchvision's ResNet-18 with its ImageNet stem, trained from scratch (He et al. 2016).

    11,279,112 parameters with K = 200 and three channels.

    Args:
        num_classes: Number of classes, K.
        in_channels: C; other than 3 replaces the first convolution.
    """

    head_name = "fc"

    def __init__(self, num_classes: int, in_channels: int = 3) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes=num_classes)
        if in_channels != 3:
            self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
