"""Saguaro: a server for speculative speculative decoding (SSD).

The shared library of three services. Importing it costs nothing: each part is imported by its own name.
"""

__version__ = "0.1.0"
