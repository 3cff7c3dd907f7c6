"""Versions of the packages that a number depends on."""

from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("cwfed", "torch", "lightning", "torchvision", "torchmetrics", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of the packages that a number depends on."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
