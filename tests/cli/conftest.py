"""Files that commands read."""

import pytest
from support import random_model

import latentmdp as lm


@pytest.fixture
def model(tmp_path):
    """The path of a saved `random_model()`."""
    path = tmp_path / "m.npz"
    lm.save(random_model(), path)
    return path
