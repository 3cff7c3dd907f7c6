"""Dividing a labelled data set among clients: pure functions of labels and an explicit generator.

Every partition is a list of M sorted int64 index arrays, disjoint and covering all samples.

Legend: N samples, K classes, M clients.
"""

import math

import numpy as np

_MIN_SAMPLES = 40
_ZERO_MASS_REDRAWS = 100_000


def pathological(
    labels_N: np.ndarray,
    num_classes: int,
    num_clients: int,
    classes_per_client: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Give every client exactly c classes, in unequal random portions.

    Class by class, ``g = M c / K`` clients share the class: the first ones that still lack
    classes. Each portion is uniform between a tenth of the even share (rounded up) and the even
    share (rounded down); the last client takes the rest.

    "The first ones" alone paints itself into a corner where c does not divide K: with M = 20,
    K = 10, c = 4 the last four clients would find two classes left. So a client that lacks as
    many classes as remain goes before the others. Then every client gets c classes whenever K
    divides M c, and where c divides K the choice is that of the plain rule.

    Args:
        labels_N: Class index of each sample, integers in ``[0, K)``.
        num_classes: Number of classes, K.
        num_clients: Number of clients, M.
        classes_per_client: Classes that a client holds, c.
        rng: Source of the portions and of the order in which samples are dealt.

    Raises:
        ValueError: If c > K, if M c < K (some class would have no client), if K does not divide
            M c, or if a class has fewer than g samples.

    Example:
        >>> labels = np.repeat(np.arange(4), 10)
        >>> parts = pathological(labels, 4, 4, 2, np.random.default_rng(0))
        >>> [sorted(set(labels[part].tolist())) for part in parts]
        [[0, 1], [0, 1], [2, 3], [2, 3]]
    """
    group = _clients_per_class(num_classes, num_clients, classes_per_client)
    members = _indices_by_class(labels_N, num_classes, at_least=group)
    lacking_M = np.full(num_clients, classes_per_client)
    shares: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for class_, indices in enumerate(members):
        chosen = _choose_clients(lacking_M, num_classes - class_, group)
        lacking_M[chosen] -= 1
        dealt = rng.permutation(indices)
        cuts = np.cumsum(_portions(len(indices), group, rng))[:-1]
        for client, part in zip(chosen, np.split(dealt, cuts), strict=True):
            shares[client].append(part)
    return [np.sort(np.concatenate(share)) for share in shares]


def dirichlet(
    labels_N: np.ndarray,
    num_classes: int,
    num_clients: int,
    alpha: float,
    min_samples: int | None,
    rng: np.random.Generator,
    max_redraws: int = 5000,
) -> list[np.ndarray]:
    """Divide each class by proportions drawn from a symmetric Dirichlet distribution.

    For each class: proportions ~ Dirichlet(α) over clients, set to 0 for clients that already
    hold N / M samples, renormalised (redrawn if they sum to 0), and the shuffled class cut at the
    cumulative proportions. The whole is redrawn until every client holds the minimum.

    Args:
        labels_N: Class index of each sample, integers in ``[0, K)``.
        num_classes: Number of classes, K.
        num_clients: Number of clients, M.
        alpha: Concentration α, finite and > 0; the smaller, the more skewed.
        min_samples: Fewest samples a client may hold; None for ``min(40, floor(N / M / 2))``.
        rng: Source of the proportions and of the order in which samples are dealt.
        max_redraws: Draws of the whole partition before giving up.

    Raises:
        ValueError: If an argument is out of range or no draw gives every client the minimum.

    Example:
        >>> labels = np.repeat(np.arange(10), 100)
        >>> parts = dirichlet(labels, 10, 4, 0.5, None, np.random.default_rng(0))
        >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 40
        (1000, True)
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha: expected a finite number > 0, got {alpha}")
    minimum = _minimum(min_samples, len(labels_N), num_clients)
    members = _indices_by_class(labels_N, num_classes)
    sizes_K = np.array([len(indices) for indices in members])
    # Only counts are redrawn: the samples are shuffled and dealt once, when the counts are right.
    fewest = -1
    for _ in range(max_redraws):
        counts_KM = _dirichlet_counts(sizes_K, num_clients, alpha, rng)
        fewest = max(fewest, int(counts_KM.sum(axis=0).min()))
        if fewest >= minimum:
            return _deal(members, counts_KM, rng)
    raise ValueError(
        f"alpha: none of {max_redraws} draws at alpha={alpha} gave each of {num_clients} clients "
        f"min_samples={minimum} samples (the best left a client with {fewest}); "
        "raise alpha, lower num_clients or lower min_samples"
    )


def iid(num_samples: int, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Divide the N samples at random into M sorted arrays whose sizes differ by at most 1.

    Raises:
        ValueError: If some client would get nothing.

    Example:
        >>> [len(part) for part in iid(10, 3, np.random.default_rng(0))]
        [4, 3, 3]
    """
    if not 1 <= num_clients <= num_samples:
        raise ValueError(f"num_clients: expected 1 to {num_samples} (samples), got {num_clients}")
    dealt = rng.permutation(np.arange(num_samples, dtype=np.int64))
    return [np.sort(part) for part in np.array_split(dealt, num_clients)]


def train_test_split(
    indices: np.ndarray, train_fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split a client's samples at random into train and test.

    Returns:
        Train, ``floor(train_fraction * n)`` of the n indices, and test, the rest; both sorted,
        and neither empty where n >= 2. A single sample is for training.

    Raises:
        ValueError: If the fraction is not in (0, 1).

    Example:
        >>> train, test = train_test_split(np.arange(10), 0.75, np.random.default_rng(0))
        >>> len(train), len(test)
        (7, 3)
    """
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction: expected a number between 0 and 1, got {train_fraction}")
    n = len(indices)
    train = max(min(_floor(train_fraction * n), n - 1), min(n, 1))
    return _cut(indices, train, rng)


def holdout(
    indices: np.ndarray, fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Hold a random part of a client's samples out, for validation.

    Returns:
        What is kept, and what is held out: ``floor(fraction * n)`` of the n indices; both sorted,
        and neither empty where n >= 2. A single sample is kept.

    Raises:
        ValueError: If the fraction is not in (0, 1).

    Example:
        >>> kept, held = holdout(np.arange(10), 0.2, np.random.default_rng(0))
        >>> len(kept), len(held)
        (8, 2)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction}")
    n = len(indices)
    held = min(max(_floor(fraction * n), 1), max(n - 1, 0))
    return _cut(indices, n - held, rng)


def _clients_per_class(num_classes: int, num_clients: int, per_client: int) -> int:
    if not 1 <= per_client <= num_classes:
        raise ValueError(
            f"classes_per_client: expected 1 to {num_classes} classes, got {per_client}"
        )
    slots = num_clients * per_client
    if slots < num_classes or slots % num_classes:
        wrong = "cannot cover" if slots < num_classes else "cannot be shared evenly by"
        raise ValueError(
            f"classes_per_client: {num_clients} clients x {per_client} classes {wrong} "
            f"{num_classes} classes; {_nearest_valid(num_classes, num_clients, per_client)}"
        )
    return slots // num_classes


def _nearest_valid(num_classes: int, num_clients: int, per_client: int) -> str:
    # K divides M c exactly when M is a multiple of K / gcd(K, c), and the same with M, c exchanged.
    clients = _around(num_clients, num_classes // math.gcd(num_classes, per_client))
    step = num_classes // math.gcd(num_classes, num_clients)
    classes = [c for c in _around(per_client, step) if c <= num_classes]
    return (
        f"nearest valid: num_clients = {' or '.join(map(str, clients))} with {per_client} classes "
        f"per client, or classes_per_client = {' or '.join(map(str, classes))} "
        f"with {num_clients} clients"
    )


def _around(value: int, step: int) -> list[int]:
    below = value // step * step
    return [multiple for multiple in (below, below + step) if multiple > 0]


def _choose_clients(lacking_M: np.ndarray, remaining: int, group: int) -> np.ndarray:
    # At most `group` clients can lack all remaining classes: the M clients together lack
    # group * remaining, and none lacks more than `remaining`.
    must = np.flatnonzero(lacking_M == remaining)
    may = np.flatnonzero((lacking_M > 0) & (lacking_M < remaining))
    return np.sort(np.concatenate([must, may[: group - len(must)]]))


def _portions(size: int, group: int, rng: np.random.Generator) -> np.ndarray:
    low, high = -(-size // (10 * group)), size // group
    portions = rng.integers(low, high, size=group - 1, endpoint=True)
    return np.append(portions, size - portions.sum())


def _minimum(min_samples: int | None, num_samples: int, num_clients: int) -> int:
    if num_clients < 1:
        raise ValueError(f"num_clients: expected an integer >= 1, got {num_clients}")
    default = min(_MIN_SAMPLES, num_samples // num_clients // 2)
    minimum = default if min_samples is None else min_samples
    if not 0 <= minimum * num_clients <= num_samples:
        raise ValueError(
            f"min_samples: expected between 0 and {num_samples // num_clients} ({num_samples} "
            f"samples among {num_clients} clients), got {minimum}"
        )
    return minimum


def _dirichlet_counts(
    sizes_K: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    held_M = np.zeros(num_clients, dtype=np.int64)
    counts_KM = np.zeros((len(sizes_K), num_clients), dtype=np.int64)
    total = int(sizes_K.sum())
    # An empty class is passed over: by then every client may be full, and no draw would do.
    for class_ in np.flatnonzero(sizes_K):
        open_M = held_M * num_clients < total
        cumulative_M = np.minimum(np.cumsum(_open_proportions(open_M, alpha, rng)), 1.0)
        # Rounding may leave the sum at 0.999…: the last open client takes what is left, so that
        # a full client behind it gets nothing.
        cumulative_M[np.flatnonzero(open_M)[-1] :] = 1.0
        cuts_M = (cumulative_M * sizes_K[class_]).astype(np.int64)
        counts_KM[class_] = np.diff(cuts_M, prepend=0)
        held_M += counts_KM[class_]
    return counts_KM


def _open_proportions(open_M: np.ndarray, alpha: float, rng: np.random.Generator) -> np.ndarray:
    for _ in range(_ZERO_MASS_REDRAWS):
        p_M = rng.dirichlet(np.full(len(open_M), alpha)) * open_M
        mass = p_M.sum()
        if 0 < mass < math.inf:
            return p_M / mass
    raise ValueError(f"alpha: expected a value that a draw can represent, got {alpha}")


def _deal(
    members: list[np.ndarray], counts_KM: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    pieces = [
        np.split(rng.permutation(indices), np.cumsum(counts_M)[:-1])
        for indices, counts_M in zip(members, counts_KM, strict=True)
    ]
    return [np.sort(np.concatenate(share)) for share in zip(*pieces, strict=True)]


def _indices_by_class(
    labels_N: np.ndarray, num_classes: int, at_least: int = 0
) -> list[np.ndarray]:
    outside = labels_N[(labels_N < 0) | (labels_N >= num_classes)]
    if len(outside):
        raise ValueError(f"labels: expected classes in [0, {num_classes}), got {outside[0]}")
    members = [np.flatnonzero(labels_N == j).astype(np.int64) for j in range(num_classes)]
    for class_, indices in enumerate(members):
        if len(indices) < at_least:
            raise ValueError(
                f"labels: class {class_} has {len(indices)} samples, expected at least one for "
                f"each of the {at_least} clients that share it"
            )
    return members


def _floor(value: float) -> int:
    # 0.29 * 100 is 28.999…: a product that is whole on paper must not lose a sample.
    return math.floor(value + 1e-9)


def _cut(indices: np.ndarray, at: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    shuffled = rng.permutation(np.asarray(indices, dtype=np.int64))
    return np.sort(shuffled[:at]), np.sort(shuffled[at:])
