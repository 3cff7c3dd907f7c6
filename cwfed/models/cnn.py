"""The four-layer CNN of the paper's tables."""

from torch import Tensor, nn
from torch.nn import functional as F

from cwfed.messages.checks import require_integer

_KERNEL = 5


class CNN4(nn.Module):
    """Two convolutions and two linear layers (arXiv 2406.07800; the benchmark it grew from).

    conv 5x5 (32) - ReLU - maxpool 2 - conv 5x5 (64) - ReLU - maxpool 2 - linear 512 - ReLU -
    linear K. Parameters: 582,026 for 1x28x28 and K = 10; 878,538 for 3x32x32 and K = 10;
    924,708 with K = 100; 5,694,600 for 3x64x64 and K = 200.

    Args:
        num_classes: Number of classes, K.
        in_channels: Channels of an image, C.
        image_size: Height and width in pixels, at least 16.
        hidden_features: Width of the first linear layer.

    Raises:
        ValueError: `image_size` is too small for two convolutions and poolings.
    """

    head_name = "head"

    def __init__(
        self, num_classes: int, in_channels: int, image_size: int, hidden_features: int = 512
    ) -> None:
        super().__init__()
        side = ((image_size - _KERNEL + 1) // 2 - _KERNEL + 1) // 2
        if side < 1:
            raise ValueError(f"image_size: expected at least 16 for CNN4, got {image_size}")
        require_integer("hidden_features", hidden_features, 1)
        self.conv1 = nn.Conv2d(in_channels, 32, _KERNEL)
        self.conv2 = nn.Conv2d(32, 64, _KERNEL)
        self.fc = nn.Linear(64 * side * side, hidden_features)
        self.head = nn.Linear(hidden_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to logits ``[B, K]``."""
        # ReLU and max pooling commute, to the bit; after pooling it has a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        logits: Tensor = self.head(F.relu(self.fc(x.flatten(1))))
        return logits
