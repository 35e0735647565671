"""The real engine: only where vLLM has its compiled part."""

import pytest

from tests.vllm.engine.small_engine import running_engine, save_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def expected(model):
    """The tokens that follow each prompt, as the engine finds them without offloading."""
    with running_engine(model) as engine:
        tokens, cached = engine.one_by_one()
    assert set(cached) == {0}
    return tokens
