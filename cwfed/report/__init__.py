"""Tables and figures from run records and partitions."""
