"""Compiled loops that several rooms share, listed for them: arrays in, arrays out, no validation.

Conventions: `P` is the packed joint table P_m(s', z | s, a) of shape (S, A, S, Z, M), contiguous
along the contexts; kernels release the GIL and never launch threads of their own.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numba import njit

    from latentmdp._kernels import bellman, tables
    from latentmdp._kernels.alias import alias_draw, alias_tables, draw_entry, ragged_alias_tables
    from latentmdp._kernels.belief import (
        AWAKE,
        Filter,
        cell,
        observe_step,
        posteriors,
        reset_belief,
        update_belief,
        write_belief,
    )
    from latentmdp._kernels.bellman import (
        GROUP,
        Successors,
        dense_rewards,
        dense_transitions,
        expect_moments,
        follow,
        informed_value,
        maxima,
        padded_states,
    )
    from latentmdp._kernels.mixture import interleave_lanes, kernels, weigh_episode
    from latentmdp._kernels.philox import uniform_pair
    from latentmdp._kernels.rollout import (
        SUMMED,
        WORLD_STREAM,
        Acting,
        Chances,
        ContextRuns,
        Earning,
        Links,
        Playing,
        add_scaled,
        begin_by,
        begin_episode,
        best_vector,
        choose,
        decide,
        decision_uniform,
        draw_of_row,
        draw_uniforms,
        first_node,
        followed,
        next_node,
        observe_first,
        observe_next,
        play_episodes,
        sum_blocks,
        sum_returns,
        world_step,
    )
    from latentmdp._kernels.rows import product
else:
    from latentmdp._util.lazy import lazy_names

    _name, __dir__, __all__ = lazy_names(__name__)

    def __getattr__(name: str) -> object:
        from latentmdp._util.clock import compile_announcement  # it imports numba

        compile_announcement()
        return _name(name)
