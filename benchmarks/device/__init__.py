"""One command for a GPU that is lent for a few minutes; see `benchmarks.device.command`."""
