"""A run put together: experiment, folder, checkpoints.

Here lives what makes a run repeatable and resumable; how it is started belongs to its callers.
"""
