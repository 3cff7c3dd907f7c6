"""Pure functions on tensors: the mathematics of methods, partitions and measures.

No class that keeps state, no file, no framework but PyTorch and NumPy, no global setting.
"""
