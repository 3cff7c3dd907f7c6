"""Names what a machine has run out of, whoever is blamed: memory, processes, threads."""

from collections.abc import Iterator

LIMITED = "the system limits processes and threads (ulimit -u): fewer workers need less"
"""Advice where no process or thread can be started."""

_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",  # a library that is loaded
    "bad_alloc",
    "could not create a primitive",  # oneDNN, which has no other words for it
    "error return without exception set",  # Python, where it has none either
)
_NO_THREAD = "can't start new thread"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory has run out, of the machine, the process or the GPU."""
    # By name: whoever asks may not have loaded PyTorch yet.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    kinds = RuntimeError | OSError | ImportError | SystemError
    return isinstance(error, kinds) and any(text in said for text in _NO_MEMORY)


def shortage(error: BaseException) -> str | None:
    """Return in one line what has run out, where that is what an error comes from.

    A model that finds no memory fails like a model with a mistake, and whoever builds it says so:
    the causes of the error count as well.
    """
    for cause in _causes(error):
        said = " ".join(str(cause).split())[:200]
        if is_out_of_memory(cause):
            advice = "fewer workers, smaller batches or a smaller chunk need less"
            return f"no memory is left ({advice}): {said}".removesuffix(": ")
        if isinstance(cause, RuntimeError) and _NO_THREAD in str(cause):
            return f"no thread can be started ({LIMITED}): {said}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
