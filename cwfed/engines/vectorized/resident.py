"""The data set on the device, and rows of banks on their way there.

Legend: N samples of the data set, w clients side by side, B samples of a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cwfed.data.federated import FederatedData


class ResidentData:
    """The whole data set as it was decoded on the device, moved once.

    Args:
        data: The clients' data.
        device: Where to.
    """

    def __init__(self, data: FederatedData, device: torch.device) -> None:
        self.images_NCHW = data.images.images_NCHW.to(device)
        self.labels_N = data.images.labels_N.to(device)
        self.served = data.images.served
        self.dtype = data.dtype
        self.most = torch.tensor(255, dtype=data.dtype, device=device)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and labels by index, to the bits of `ImageData.served`.

        Args:
            index: int64 ``[...]`` on the device.

        Returns:
            Samples ``[..., C, H, W]`` and labels ``[...]``.
        """
        samples = self.served(self.images_NCHW[index], self.dtype, self.most)
        return samples, self.labels_N[index]


def shares_rows(bank_value: Tensor) -> bool:
    """Return whether all rows of a bank's tensor are the same memory."""
    return bank_value.stride(0) == 0


def rows_on(bank_value: Tensor, rows: Sequence[int], device: torch.device) -> Tensor:
    """Return rows ``[w, ...]`` on a device, copied; rows that share memory travel once."""
    if shares_rows(bank_value):
        return bank_value[0].to(device).expand(len(rows), *bank_value.shape[1:])
    index = torch.as_tensor(rows, dtype=torch.int64)
    return bank_value.index_select(0, index).to(device)
