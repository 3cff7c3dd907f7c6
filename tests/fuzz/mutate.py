"""Damaged copies of sound files, from a seed."""

import random
import re
from collections.abc import Callable, Iterator, Sequence

TOKENS = (
    *(b"null", b"NaN", b"-1", b"1e999", b"[]", b"{}", b'""', b"true", b"0", b"9" * 5000, b"\xff"),
    *(b"\0", b"[" * 5000, b"class_path", b"init_args", b"!!python/object/apply:os.system [ls]"),
    *(b"*a", b"&a ", b"\n", b":", b",", b'"', b"-", b"\x1b[2J", b"Infinity", b"\xed\xa0\x80"),
)
"""What readers stumble over more often than over random bytes."""

VALUES = (
    *(b"null", b"NaN", b"-1", b"1e999", b"[]", b"{}", b'""', b"true", b"0", b"4.71", b"[0]"),
    *(b"1.0", b"9" * 25, b'{"a": 1}', b'"0.5"', b"-Infinity"),
)
"""What can stand for any value in JSON and leaves it JSON."""

_VALUE = re.compile(rb'-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|"[^"\\\n]*"(?!\s*:)|true|false|null')

Mutate = Callable[[random.Random, bytes], bytes]


def damaged(seeds: Sequence[bytes], seed: int, mutate: Mutate) -> Iterator[bytes]:
    """Yield damaged copies of the seeds without end."""
    rng = random.Random(seed)
    while True:
        yield mutate(rng, rng.choice(seeds))


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with one to four places replaced; every third time values by values."""
    if rng.random() < 0.35:
        return mutate_values(rng, data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        length = rng.choice((0, 0, 1, 1, 4, 30, 1000))
        new = rng.choice(TOKENS) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 3))
        data = data[:at] + new + data[at + length :]
    return data


def mutate_values(rng: random.Random, data: bytes) -> bytes:
    """Return a text in which one or two values are others: JSON stays JSON."""
    for _ in range(rng.randint(1, 2)):
        found = list(_VALUE.finditer(data))
        if found:
            start, end = rng.choice(found).span()
            data = data[:start] + rng.choice(VALUES) + data[end:]
    return data
