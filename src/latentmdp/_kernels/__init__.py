"""Every compiled loop of the library, and nothing else: arrays in, arrays out, no validation.

Conventions: `P` is the packed joint table P_m(s', z | s, a) of shape (S, A, S, Z, M), contiguous
along the contexts; kernels release the GIL and never launch threads of their own.
"""

from latentmdp._util.clock import compile_announcement

compile_announcement()
