"""What a file of each kind holds: the entries of the registry in `latentmdp.io.kinds`."""

from __future__ import annotations

from latentmdp.errors import FormatError
from latentmdp.io.kinds import Fields, Kind, register
from latentmdp.model import LatentMDP
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

register(
    Kind(
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
        suffixes=(".npz", ".json"),
    )
)

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
