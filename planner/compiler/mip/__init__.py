"""The ILP for general solvers: references, caps that couple nodes, and what the own search leaves open.

`ilp` builds it, `cbc` and `highs` solve it, `checked` makes sure that what they say keeps the caps; `fallback` and
`feasibility` find plans and bounds without a solver. Modules here load solver libraries: import them where needed only.
"""
