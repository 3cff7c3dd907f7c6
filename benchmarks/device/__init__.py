"""What to do with a GPU that is lent for a few minutes; see `benchmarks.device.command`."""
