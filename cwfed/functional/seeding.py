"""Randomness as a function of (seed, purpose, round, client), never of global state.

Two runs that ask the same question get the same numbers, whatever order they ask in, which engine
asks and what ran before in the process.
"""

import hashlib

import numpy as np
import torch


def derive_seed(seed: int, purpose: str, *, round_: int = 0, client: int = 0) -> int:
    """Derive an independent 63-bit seed for one purpose, round and client.

    Args:
        seed: The run's seed.
        purpose: What the numbers are for, such as ``"batches"``.
        round_: Round number, 0 for what happens once.
        client: Client id, 0 for what concerns no single client.

    Returns:
        An integer in ``[0, 2**63)``: the head of the SHA-256 digest of the four values.

    Example:
        >>> derive_seed(0, "batches", round_=1) == derive_seed(0, "batches", round_=1)
        True
        >>> derive_seed(0, "batches", round_=1) == derive_seed(0, "batches", round_=2)
        False
    """
    text = f"cwfed/{seed}/{purpose}/{round_}/{client}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(
    seed: int, purpose: str, *, round_: int = 0, client: int = 0
) -> torch.Generator:
    """Return a CPU ``torch.Generator`` seeded by `derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, round_=round_, client=client))


def numpy_generator(
    seed: int, purpose: str, *, round_: int = 0, client: int = 0
) -> np.random.Generator:
    """Return a NumPy ``Generator`` (PCG64) seeded by `derive_seed`."""
    return np.random.Generator(
        np.random.PCG64(derive_seed(seed, purpose, round_=round_, client=client))
    )
