import logging
import sys
from types import ModuleType

import pytest

from kvreg.tiering import HostMemoryTier, SecondaryTierFactory
from kvreg.tiering import factory as factory_module
from tests.tiering.test_base import LeastTier

VIEW = memoryview(bytearray(64)).cast("B", (4, 16))


class RecordingTier(LeastTier):
    """Keeps the parameters of its construction."""

    def __init__(self, offloading_spec, primary_kv_view, tier_type, **parameters):
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        self.parameters = parameters


@pytest.fixture(autouse=True)
def _restore_factory(monkeypatch):
    monkeypatch.setattr(SecondaryTierFactory, "_registry", dict(SecondaryTierFactory._registry))
    monkeypatch.setattr(SecondaryTierFactory, "_warned_out_of_tree", False)


@pytest.fixture
def out_of_tree(monkeypatch):
    module = ModuleType("out_of_tree_tiers")
    module.RecordingTier = RecordingTier
    module.NotATier = dict
    module.not_a_class = 7
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_host_is_registered():
    assert SecondaryTierFactory.get_tier_class({"type": "host"}) is HostMemoryTier


def test_a_registered_class_is_imported_when_it_is_asked_for(out_of_tree, monkeypatch):
    SecondaryTierFactory.register_tier("missing", "no_such_module", "Tier")
    SecondaryTierFactory.register_tier("recording", out_of_tree, "RecordingTier")
    assert SecondaryTierFactory.get_tier_class({"type": "recording"}) is RecordingTier
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        SecondaryTierFactory.get_tier_class({"type": "missing"})


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match=r"'host'.*kvreg\.tiering\.host\.HostMemoryTier"):
        SecondaryTierFactory.register_tier("host", "elsewhere", "Tier")
    assert SecondaryTierFactory.get_tier_class({"type": "host"}) is HostMemoryTier


@pytest.mark.parametrize("config", [{}, {"type": ""}, {"type": None}, {"type": 7}])
def test_a_configuration_without_a_type_is_refused(config):
    with pytest.raises(ValueError, match=r"'type'.*'host'"):
        SecondaryTierFactory.get_tier_class(config)


def test_an_unknown_type_is_refused_with_those_known():
    with pytest.raises(ValueError, match=r"'ghost'.*\['host'\].*'module_path'"):
        SecondaryTierFactory.get_tier_class({"type": "ghost"})


def test_a_module_path_finds_an_out_of_tree_class(out_of_tree):
    config = {"type": "RecordingTier", "module_path": out_of_tree}
    assert SecondaryTierFactory.get_tier_class(config) is RecordingTier


def test_a_registered_name_goes_before_a_module_path(out_of_tree):
    config = {"type": "host", "module_path": out_of_tree}
    assert SecondaryTierFactory.get_tier_class(config) is HostMemoryTier


def test_out_of_tree_tiers_warn_once_and_are_named_each_time(out_of_tree, caplog):
    config = {"type": "RecordingTier", "module_path": out_of_tree}
    with caplog.at_level(logging.INFO, logger=factory_module.__name__):
        SecondaryTierFactory.get_tier_class(config)
        SecondaryTierFactory.get_tier_class(config)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert f"RecordingTier from {out_of_tree}" in caplog.text


@pytest.mark.parametrize("name", ["NotATier", "not_a_class"])
def test_what_is_not_a_tier_is_refused(out_of_tree, name):
    with pytest.raises(TypeError, match=rf"{out_of_tree}\.{name}.*SecondaryTierManager"):
        SecondaryTierFactory.get_tier_class({"type": name, "module_path": out_of_tree})


def test_a_module_without_the_class_is_named(out_of_tree):
    with pytest.raises(ValueError, match=rf"{out_of_tree}.*'Absent'"):
        SecondaryTierFactory.get_tier_class({"type": "Absent", "module_path": out_of_tree})


def test_a_tier_gets_its_parameters_and_the_configuration_stays(out_of_tree):
    config = {"type": "RecordingTier", "module_path": out_of_tree, "size": 3, "mode": "x"}
    before = dict(config)
    tier = SecondaryTierFactory.create_secondary_tier(config, VIEW, "spec")
    assert config == before
    assert tier.parameters == {"size": 3, "mode": "x"}
    assert (tier.offloading_spec, tier.tier_type) == ("spec", "RecordingTier")
    assert tier.primary_kv_view is VIEW


@pytest.mark.parametrize("name", ["capcity", "tier_type", "offloading_spec"])
def test_an_item_that_the_constructor_does_not_take_is_named_with_those_it_takes(name):
    config = {"type": "host", name: 64}
    with pytest.raises(TypeError, match=rf"no parameter {name}; it has capacity, .*verify"):
        SecondaryTierFactory.create_secondary_tier(config, VIEW, None)


def test_the_factory_makes_a_host_tier():
    config = {"type": "host", "capacity": 64}
    tier = SecondaryTierFactory.create_secondary_tier(config, VIEW, None)
    assert isinstance(tier, HostMemoryTier)
    assert tier.tier_type == "host"
    tier.shutdown()
