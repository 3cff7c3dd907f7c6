"""Data: sources, partitions, and the clients' batches."""
