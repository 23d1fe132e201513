"""Each experiment, run tiny and for real, looked at for the shape of its result."""
