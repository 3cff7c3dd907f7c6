"""Pages, tables and plots of finished and running runs.

Here lives how they look; what they say is worked out in analysis, and what a run holds in records.
"""
