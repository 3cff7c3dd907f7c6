"""The published partition, slowly: the global generators are seeded, then drawn from step by step.

Written from its description (the seed 1 for `random` and NumPy, whatever the run's seed), with
scikit-learn for the split. Samples are numbers of positions in the order of the labels.
"""

import random
import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.model_selection import train_test_split


@contextmanager
def global_seed(seed):
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def dirichlet_shares(labels, classes, clients, alpha):
    total = len(labels)
    minimum = int(min(10 / (1 - 0.75), total / clients / 2))
    while True:
        shares = [[] for _ in range(clients)]
        for j in range(classes):
            members = np.array([n for n in range(total) if labels[n] == j], dtype=np.int64)
            np.random.shuffle(members)
            drawn = np.random.dirichlet([alpha] * clients)
            for client in range(clients):
                if not len(shares[client]) < total / clients:
                    drawn[client] = 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # 0 / 0
                ends = (np.cumsum(drawn / drawn.sum()) * len(members)).astype(int)
            for client, piece in enumerate(np.split(members, ends[:-1])):
                shares[client].extend(piece.tolist())
        if min(len(share) for share in shares) >= minimum:
            return shares


def pathological_shares(labels, classes, clients, per_client):
    total = len(labels)
    minimum = int(min(10 / (1 - 0.75), total / clients / 2))
    shares = [[] for _ in range(clients)]
    held = [0] * clients
    for j in range(classes):
        members = [n for n in range(total) if labels[n] == j]
        takers = [client for client in range(clients) if held[client] < per_client]
        takers = takers[: int(np.ceil((clients / classes) * per_client))]
        even = len(members) / len(takers)
        low = max(even / 10, minimum / classes)
        portions = np.random.randint(low, even, len(takers) - 1).tolist()
        portions.append(len(members) - sum(portions))
        for client, portion in zip(takers, portions, strict=True):
            shares[client].extend(members[:portion])
            members = members[portion:]
            held[client] += 1
    return shares


def released(labels, classes, clients, kind, value, seed=1):
    """Return every client's train and test positions, each as a set."""
    draw = {"dirichlet": dirichlet_shares, "pathological": pathological_shares}[kind]
    with global_seed(seed):
        shares = draw(labels, classes, clients, value)
        pairs = [train_test_split(share, train_size=0.75, shuffle=True) for share in shares]
    return [(set(train), set(test)) for train, test in pairs]
