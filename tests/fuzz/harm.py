"""What a target must not do."""


class Harm(BaseException):
    """A reader did what no reader may; no handler for ordinary errors hides it."""
