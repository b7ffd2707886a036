"""An independent check of a plan (ours): every number again from the inputs, sharing no code with the compiler's path.

`facts`: what the inputs give, once per problem. `check`: a plan against them. `residual`: the same for a suffix.
"""

from __future__ import annotations

from planner.compiler.certificate.check import verify_plan

__all__ = ["verify_plan"]
