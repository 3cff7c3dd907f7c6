"""Records of a run: files written whole and read with care, and what they mean.

Plain Python and NumPy: nothing here loads PyTorch, Lightning or a dashboard, or starts anything.
"""
