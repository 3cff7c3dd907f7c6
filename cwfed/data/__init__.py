"""Data: sources, decoding and caches, partitions, and the clients' batches.

Nothing here knows a model, a method or a round's outcome.
"""
