"""A draft for a target that has none: the target writes the data, a few of its own layers learn to follow it.

`prompts` says what is asked, `writing` lets the target answer, `shards` keeps the answers with the target's likeliest
tokens, `cut` makes the draft, `loss` and `training` teach it, `evaluation` judges it on prompts of other templates and
topics, `report` says what it costs and brings. `session` is the order of it all; `saguaro distill` is the door.
"""
