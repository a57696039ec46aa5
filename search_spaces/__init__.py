"""Ready search spaces, the loader for one's own, and the training settings that follow from a point.

A space is a YAML file of parameters (:mod:`search_spaces.definition`). :func:`load_space` turns it into a
:class:`SearchSpace`, whose points name *controls* (η, τ, tokens per parameter, batch); :meth:`SearchSpace.derive` solves
them for what a training loop takes (η, λ, sequences a batch, steps) at a given size. Optuna is imported only when its
distributions are asked for.
"""

from search_spaces.derived import RunContext, derive
from search_spaces.loader import BUILT_IN, load_space
from search_spaces.space import SearchSpace

__all__ = ["BUILT_IN", "RunContext", "SearchSpace", "derive", "load_space"]
