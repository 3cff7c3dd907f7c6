"""Pure functions on tensors: the mathematics, free of any framework."""
