"""What a file of each kind holds: the entries of the registry in `latentmdp.io.kinds`."""

from __future__ import annotations

from latentmdp.errors import FormatError
from latentmdp.io.kinds import Fields, Kind, register
from latentmdp.model import LatentMDP
from latentmdp.policies import AlphaVectorPolicy, MarkovPolicy, UniformPolicy
from latentmdp.trajectories import Trajectories

__all__: list[str] = []


def _encode_model(model: LatentMDP) -> Fields:
    names = {name: getattr(model, name) for name in _NAMES}
    return {
        **{name: getattr(model, name) for name in (*_MODEL_ARRAYS, "horizon", "discount")},
        **{name: None if value is None else list(value) for name, value in names.items()},
        "allow_unvisited": model.allow_unvisited,
    }


def _decode_model(fields: Fields) -> LatentMDP:
    rewards = fields.pop("reward_probs")
    if rewards.ndim < 4:
        raise FormatError(
            "field 'reward_probs' must have shape (M, S, A, Z) or (M, S, A, S, Z), got "
            f"{rewards.shape}"
        )
    return LatentMDP(rewards=rewards, **fields)


_NAMES = ("context_names", "state_names", "action_names")
_HIDDEN = ("bonus", "initial_bonus")
_MODEL_ARRAYS = dict.fromkeys(
    ("transitions", "reward_probs", "reward_values", "initial", "weights", *_HIDDEN), "float"
)

MODEL = Kind(
    name="model",
    owner=LatentMDP,
    encode=_encode_model,
    decode=_decode_model,
    arrays=_MODEL_ARRAYS,
    values={
        "horizon": int,
        "discount": float,
        "allow_unvisited": bool,
        **dict.fromkeys(_NAMES, list),
    },
    optional=frozenset({*_HIDDEN, *_NAMES}),
    suffixes=(".npz", ".json", ".pomdp", ".pomdpx"),
)
register(MODEL)

_LOG_ARRAYS = {
    **dict.fromkeys(("states", "actions", "rewards", "offsets", "contexts", "counts"), "integer"),
    "reward_values": "float",
}

register(
    Kind(
        name="trajectories",
        owner=Trajectories,
        encode=lambda logs: {
            name: getattr(logs, name) for name in (*_LOG_ARRAYS, "n_states", "n_actions")
        },
        decode=lambda fields: Trajectories(**fields),
        arrays=_LOG_ARRAYS,
        values={"n_states": int, "n_actions": int},
        optional=frozenset({"contexts", "counts", "reward_values"}),
        suffixes=(".npz", ".parquet"),
    )
)


def _encode_alpha_vectors(policy: AlphaVectorPolicy) -> Fields:
    model = {_PREFIX + name: value for name, value in _encode_model(policy.model).items()}
    own = ("vectors", "actions", "offsets", "smoothing")
    return {**{name: getattr(policy, name) for name in own}, **model}


def _decode_alpha_vectors(fields: Fields) -> AlphaVectorPolicy:
    model = {n.removeprefix(_PREFIX): v for n, v in fields.items() if n.startswith(_PREFIX)}
    own = {name: value for name, value in fields.items() if not name.startswith(_PREFIX)}
    return AlphaVectorPolicy(model=_decode_model(model), **own)


# The model whose belief a policy tracks is part of the policy, its fields marked by a prefix.
_PREFIX = "model."

register(
    Kind(
        name="alpha-vector-policy",
        owner=AlphaVectorPolicy,
        encode=_encode_alpha_vectors,
        decode=_decode_alpha_vectors,
        arrays={
            "vectors": "float",
            "actions": "integer",
            "offsets": "integer",
            **{_PREFIX + name: what for name, what in MODEL.arrays.items()},
        },
        values={
            "smoothing": float,
            **{_PREFIX + name: what for name, what in MODEL.values.items()},
        },
        optional=frozenset(_PREFIX + name for name in MODEL.optional),
    )
)


def _decode_markov(fields: Fields) -> MarkovPolicy:
    if len(fields) != 1:
        raise FormatError("a markov-policy has either 'actions' or 'probabilities'")
    return MarkovPolicy(*fields.values())


register(
    Kind(
        name="markov-policy",
        owner=MarkovPolicy,
        encode=lambda policy: {
            "actions": policy.actions,
            "probabilities": policy.probabilities,
        },
        decode=_decode_markov,
        arrays={"actions": "integer", "probabilities": "float"},
        values={},
        optional=frozenset({"actions", "probabilities"}),
    )
)

register(
    Kind(
        name="uniform-policy",
        owner=UniformPolicy,
        encode=lambda policy: {},
        decode=lambda fields: UniformPolicy(),
        arrays={},
        values={},
    )
)
