"""What is kept of a run: its identity.

Plain Python: nothing here loads PyTorch, Lightning or a dashboard.
"""
