"""The algorithm, pure: values in, values out; no I/O, no clock, no environment, no randomness of its own."""
