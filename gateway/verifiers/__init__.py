"""The verifiers behind this gateway: who can be used, who takes the next generation, and what happens when one dies."""

from gateway.verifiers.generation import Generation
from gateway.verifiers.pool import VerifierPool

__all__ = ["Generation", "VerifierPool"]
