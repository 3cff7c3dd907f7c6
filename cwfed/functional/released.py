"""The partition that is published with the code base on which the paper builds.

It is drawn once, by NumPy's legacy generator (`numpy.random.RandomState`, whose stream is frozen
for good) from the seed 1: first the clients' shares, then, from the same generator, the 75 / 25
split of every share, client by client. The number of samples of each class on each client depends
on the class sizes alone; which samples these are depends on the order of the samples as well.

Shares are int64 arrays in the order in which they are dealt, since the split goes on from that
order: disjoint and, together, all samples.

Legend: N samples, K classes, M clients.
"""

import math

import numpy as np

LEAST = 40
"""Samples that every client holds at least: a batch of 10 over a test share of 1/4."""


def dirichlet(
    labels_N: np.ndarray,
    num_classes: int,
    num_clients: int,
    alpha: float,
    rng: np.random.RandomState,
    max_redraws: int = 10_000,
) -> list[np.ndarray]:
    """Divide each class by proportions drawn from a symmetric Dirichlet distribution.

    Class by class: its samples are shuffled; proportions ~ Dirichlet(α), set to 0 for clients that
    hold N / M samples and renormalised; cumulative sums times the class size, cut to integers, say
    where the samples are divided. What rounding leaves goes to the last client, also if it is
    full. All is drawn again until every client holds ``min(40, N / M / 2)`` samples.

    Args:
        labels_N: Class index of each sample, integers in ``[0, K)``.
        num_classes: Number of classes, K.
        num_clients: Number of clients, M.
        alpha: Concentration α, > 0.
        rng: Source of every draw.
        max_redraws: Draws of the whole before giving up.

    Raises:
        ValueError: If no draw gives every client the minimum.

    Example:
        >>> labels = np.repeat(np.arange(10), 100)
        >>> parts = dirichlet(labels, 10, 4, 0.5, np.random.RandomState(1))
        >>> [len(part) for part in parts]
        [248, 250, 292, 210]
    """
    members = _indices_by_class(labels_N, num_classes)
    least, fewest = _least(len(labels_N), num_clients), -1
    for _ in range(max_redraws):
        shares = _draw_shares(members, num_clients, alpha, rng)
        fewest = max(fewest, min(map(len, shares)))
        if fewest >= least:
            return shares
    raise ValueError(
        f"alpha: none of {max_redraws} draws at alpha={alpha} gave each of {num_clients} clients "
        f"{least} samples (the best left a client with {fewest}); raise alpha or lower num_clients"
    )


def pathological(
    labels_N: np.ndarray,
    num_classes: int,
    num_clients: int,
    classes_per_client: int,
    rng: np.random.RandomState,
) -> list[np.ndarray]:
    """Give every client a fixed number of classes c, in unequal random portions.

    Class by class, the first ``M c / K`` clients that still lack classes share it. With e the even
    share, each portion is uniform in ``[max(e / 10, least / K), e)``, both ends cut to integers;
    the last client takes the rest. Samples are dealt in the order in which they stand. Where c does
    not divide K, the last clients may end with fewer classes than c.

    Args:
        labels_N: Class index of each sample, integers in ``[0, K)``.
        num_classes: Number of classes, K.
        num_clients: Number of clients, M.
        classes_per_client: Classes that a client holds, c.
        rng: Source of the portions.

    Raises:
        ValueError: If a class finds no client, a client no class, or a class is too small.

    Example:
        >>> labels = np.repeat(np.arange(4), 100)
        >>> parts = pathological(labels, 4, 4, 2, np.random.RandomState(1))
        >>> [np.bincount(labels[part], minlength=4).tolist() for part in parts]
        [[47, 22, 0, 0], [53, 78, 0, 0], [0, 0, 18, 19], [0, 0, 82, 81]]
    """
    least = _least(len(labels_N), num_clients)
    # In floating point, as the released code rounds it up.
    group = math.ceil((num_clients / num_classes) * classes_per_client)
    lacking_M = np.full(num_clients, classes_per_client)
    shares: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for class_, indices in enumerate(_indices_by_class(labels_N, num_classes)):
        chosen = np.flatnonzero(lacking_M > 0)[:group]
        if not len(chosen):
            raise ValueError(
                f"classes_per_client: expected a number for which every class finds a client, got "
                f"{classes_per_client} with {num_clients} clients, which leaves class {class_} out"
            )
        sizes = _portions(class_, len(indices), len(chosen), least / num_classes, rng)
        for client, part in zip(chosen, np.split(indices, np.cumsum(sizes)[:-1]), strict=True):
            shares[client].append(part)
        lacking_M[chosen] -= 1
    return [np.concatenate([*share, np.empty(0, dtype=np.int64)]) for share in shares]


def train_test_split(
    share: np.ndarray, train_fraction: float, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Split a client's share as scikit-learn's ``train_test_split`` does with a shuffle.

    Args:
        share: The client's samples, in the order in which they were dealt.
        train_fraction: Share of them for training, in (0, 1), rounded down.
        rng: Source of the shuffle.

    Returns:
        Train and test, both sorted.

    Example:
        >>> train, test = train_test_split(np.arange(8), 0.75, np.random.RandomState(1))
        >>> train.tolist(), test.tolist()
        ([0, 1, 3, 4, 5, 6], [2, 7])
    """
    order = rng.permutation(len(share))
    tested = len(share) - math.floor(train_fraction * len(share))
    return np.sort(share[order[tested:]]), np.sort(share[order[:tested]])


def _least(num_samples: int, num_clients: int) -> int:
    return int(min(LEAST, num_samples / num_clients / 2))


def _indices_by_class(labels_N: np.ndarray, num_classes: int) -> list[np.ndarray]:
    outside = labels_N[(labels_N < 0) | (labels_N >= num_classes)]
    if len(outside):
        raise ValueError(f"labels: expected classes in [0, {num_classes}), got {outside[0]}")
    return [np.flatnonzero(labels_N == j).astype(np.int64) for j in range(num_classes)]


def _draw_shares(
    members: list[np.ndarray], num_clients: int, alpha: float, rng: np.random.RandomState
) -> list[np.ndarray]:
    full = sum(map(len, members)) / num_clients
    held_M = np.zeros(num_clients, dtype=np.int64)
    pieces = []
    for indices in members:
        dealt = indices.copy()
        rng.shuffle(dealt)
        cuts = _cuts(rng.dirichlet(np.full(num_clients, alpha)) * (held_M < full), len(dealt))
        pieces.append(np.split(dealt, cuts))
        held_M += [len(piece) for piece in pieces[-1]]
    return [np.concatenate(share) for share in zip(*pieces, strict=True)]


def _cuts(p_M: np.ndarray, size: int) -> np.ndarray:
    mass = p_M.sum()
    if not mass > 0:
        # 0 / 0 cut to integers: on usual machines all samples go to the last client.
        return np.zeros(len(p_M) - 1, dtype=np.int64)
    return (np.cumsum(p_M / mass) * size).astype(np.int64)[:-1]


def _portions(
    class_: int, size: int, group: int, least: float, rng: np.random.RandomState
) -> np.ndarray:
    low, high = int(max(size / group / 10, least)), int(size / group)
    if group == 1:
        return np.array([size])
    if low >= high:
        raise ValueError(
            f"labels: class {class_} has {size} samples, expected at least {group * (low + 1)} "
            f"for the {group} clients that share it"
        )
    portions = rng.randint(low, high, group - 1, dtype=np.int64)
    return np.append(portions, size - portions.sum())
