"""Descriptions of runs, as people write them: files, options, the parser, whom to trust.

Here lives how it is read and refused; nothing here starts anything.
"""
