"""Side-by-side measurements: SSD, synchronous SD, plain decoding, and transformers with the same weights.

`plan` says what is measured, `runner` measures it, `summary` and `prediction` make numbers of it, `results`, `tables`
and `plots` show them. `saguaro bench` is the door. `python -m bench.gateway_overhead` measures the gateway alone.
"""
