"""The speculator: owns the draft model and prepares the next speculation while the verifier verifies.

`service` is the gRPC face, `scheduler` the loop over all sequences, `session` what is known of one sequence.
"""
