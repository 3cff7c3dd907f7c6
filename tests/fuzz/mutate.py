"""Damaged copies of sound files, from a seed."""

import random
from collections.abc import Iterator, Sequence

TOKENS = (
    *(b"null", b"NaN", b"-1", b"1e999", b"[]", b"{}", b'""', b"true", b"0", b"9" * 5000, b"\xff"),
    *(b"\0", b"[" * 5000, b"class_path", b"init_args", b"!!python/object/apply:os.system [ls]"),
    *(b"*a", b"&a ", b"\n", b":", b",", b'"', b"-", b"\x1b[2J", b"Infinity", b"\xed\xa0\x80"),
)
"""What readers stumble over more often than over random bytes."""


def damaged(seeds: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Yield copies of the seeds without end, each with one to four places replaced."""
    rng = random.Random(seed)
    while True:
        data = rng.choice(seeds)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            length = rng.choice((0, 0, 1, 1, 4, 30, 1000))
            new = rng.choice(TOKENS) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 3))
            data = data[:at] + new + data[at + length :]
        yield data
