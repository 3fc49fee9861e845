"""Emulated devices, as far as they need no engine: profiles and their synthetic tokenizer.

Loads neither torch nor numpy: the command line reads profiles too. What emulates is `saguaro.engine.emulated`.
"""
