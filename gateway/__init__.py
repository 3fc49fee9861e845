"""The public door: text in, text out. Tokenizes, validates, streams; never loads a model."""
