"""What vLLM calls when it starts: the entry point ``kvreg`` of ``vllm.general_plugins``.

Importing this module imports neither vLLM nor torch.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os

logger = logging.getLogger(__name__)


def register() -> None:
    """Make kvreg known to the vLLM of this process; calling it again does nothing.

    The tier type ``"kvreg"`` can be asked for from then on, and vLLM's KV-cache spec registry
    answers faster, unless the environment variable ``KVREG_VLLM_REGISTRY`` is ``0``. Where this
    vLLM has interfaces that kvreg does not know, a warning says so, and vLLM stays as it is.
    """
    _register_tier()
    if os.environ.get("KVREG_VLLM_REGISTRY", "1") != "0":
        _accelerate_registry()


@functools.cache
def _register_tier() -> None:
    try:
        interface = importlib.import_module("kvreg.vllm.interface")
        interface.read_interface()
        interface.SecondaryTierFactory.register_tier(
            tier_type="kvreg",
            module_path="kvreg.vllm.tier",
            class_name="HostMemoryTierManager",
        )
    except Exception as error:
        # Whatever a vLLM raises that is another than those known: it goes on without the tier.
        logger.warning("the tier type 'kvreg' is not available: %s", error)


@functools.cache
def _accelerate_registry() -> None:
    importlib.import_module("kvreg.vllm.registry").install()
