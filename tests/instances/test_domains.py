"""The readable domains: what they promise to someone who knows the domain."""

import numpy as np
import pytest
from belief_dp import informed_values, q_values

import latentmdp as lm

NAMED = ("treatment", "visitor", "frozen-lake", "wait-hub", "river-swim", "rock-sample")


@pytest.mark.parametrize("name", [*NAMED, "identification"])
def test_everything_has_a_name(name):
    model = lm.make(name)
    assert len(model.context_names) == model.n_contexts
    assert len(model.state_names) == model.n_states
    assert len(model.action_names) == model.n_actions


class TestTreatment:
    model = lm.make("treatment")

    def test_lost_is_for_ever_and_worth_nothing(self):
        lost = self.model.state_names.index("lost")
        assert (self.model.transitions[:, lost, :, lost] == 1).all()
        assert (self.model.mean_rewards()[:, lost] == 0).all()

    def test_stages_change_by_at_most_one_a_quarter(self):
        T = self.model.transitions
        s, s_next = np.indices(T.shape[1:])[[0, 2]]
        assert (T[:, abs(s - s_next) > 1] == 0).all()

    def test_contexts_want_different_therapies(self):
        mild = self.model.state_names.index("mild")
        best = q_values(self.model)[0, :, mild].argmax(axis=-1)
        wanted = dict(zip(self.model.context_names, best))
        assert wanted["drug-resistant"] == self.model.action_names.index("intensive therapy")
        assert wanted["frail"] == self.model.action_names.index("standard drug")
        assert len(set(best)) >= 2

    def test_worse_stages_are_worse(self):
        V = q_values(self.model)[0].max(axis=-1)
        assert (np.diff(V, axis=1) < 0).all()


class TestVisitor:
    model = lm.make("visitor")

    def test_only_buying_pays_and_a_discount_costs(self):
        model = self.model
        cart, bought = model.state_names.index("cart"), model.state_names.index("bought")
        earned = model.reward_probs @ model.reward_values
        discount = model.action_names.index("discount")
        assert (earned[:, cart, discount, bought] == 0.6).all()
        earned = np.delete(earned[:, cart, :, bought], discount, axis=1)
        assert (earned == 1).all()
        others = (model.reward_probs @ model.reward_values).copy()
        others[:, cart, :, bought] = 0
        assert (others == 0).all()

    def test_a_visit_that_ended_has_ended(self):
        for name in ("bought", "left"):
            s = self.model.state_names.index(name)
            assert (self.model.transitions[:, s, :, s] == 1).all()

    def test_types_want_different_displays(self):
        product_page = self.model.state_names.index("product")
        best = q_values(self.model)[0, :, product_page].argmax(axis=-1)
        assert len(set(best)) >= 3

    def test_at_most_one_sale_a_visit(self):
        assert (informed_values(self.model) < 1).all()


class TestFrozenLake:
    @pytest.mark.parametrize("slippery", [False, True])
    @pytest.mark.parametrize("map_name", ["4x4", "8x8"])
    def test_without_wind_it_is_gymnasiums(self, map_name, slippery):
        from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

        table = FrozenLakeEnv(map_name=map_name, is_slippery=slippery).P
        model = lm.make("frozen-lake", map_name=map_name, wind=0.0, slippery=slippery)
        P = model.observation_probs()
        for s in table:
            for a in table[s]:
                expected = np.zeros(P.shape[3:])
                for p, s_next, r, _ in table[s][a]:
                    expected[s_next, int(r)] += p
                np.testing.assert_allclose(P[:, s, a], np.broadcast_to(expected, P[:, s, a].shape))

    def test_a_gale_decides_alone(self):
        calm, gale = lm.make("frozen-lake", wind=0.0), lm.make("frozen-lake", wind=1.0)
        for m in range(4):
            for a in range(4):
                np.testing.assert_array_equal(gale.transitions[m, :, a], calm.transitions[0, :, m])

    def test_wind_mixes_the_wanted_move_and_its_own(self):
        calm = lm.make("frozen-lake", wind=0.0).observation_probs()[0]
        P = lm.make("frozen-lake", wind=0.25).observation_probs()
        for m in range(4):
            for a in range(4):
                np.testing.assert_allclose(P[m, :, a], 0.75 * calm[:, a] + 0.25 * calm[:, m])

    def test_holes_and_goal_absorb_and_pay_nothing(self):
        model = lm.make("frozen-lake")
        means = model.mean_rewards()
        for s in (5, 7, 11, 12, 15):
            assert (model.transitions[:, s, :, s] == 1).all()
            assert (means[:, s] == 0).all()
        assert (means[:, 14] > 0).any()
