"""The content of values and code: what a cache key is made of, the same in every process.

`values` follows what a call is given and what travels with it by value; `slices` follows the source
of the modules that the job imports; what can be seen by neither raises `Unseen`, and has no key.
"""

from slurm.content.slices import Slices
from slurm.content.unseen import Unseen
from slurm.content.values import Digest

__all__ = ["Digest", "Slices", "Unseen"]
