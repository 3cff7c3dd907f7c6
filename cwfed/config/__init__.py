"""What a person writes to describe a run: files, options, the parser, whom to trust.

Here lives how it is read and refused; nothing here starts anything.
"""
