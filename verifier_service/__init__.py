"""The verifier: owns the target model, the output and the truth.

Read `decode_loop` first: it is the life of every token.
"""
