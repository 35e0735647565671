"""vLLM's real engine, small: a Llama of random weights, on the CPU, in this process."""

import os
import random
from contextlib import contextmanager

from vllm import LLM, SamplingParams

from tests.vllm.engine.cpu_offloading_spec import CpuTieringSpec

PROMPT_TOKENS = 640
BLOCK_TOKENS = 32
CHUNKS = PROMPT_TOKENS // BLOCK_TOKENS  # of a prompt
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)

_choose = random.Random(1)
PROMPTS = [[_choose.randrange(512) for _ in range(PROMPT_TOKENS)] for _ in range(24)]


def save_model(folder):
    """Write a model of two layers, whose weights are the same each time, and return its path.

    In float32: other ways of computing the same number hardly ever choose another token. Its
    words are the numbers of the tokens.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({str(token): token for token in range(512)}, unk_token="0"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return str(folder)


def offloading_to(tiers, **extra):
    """Return vLLM's ``kv_transfer_config`` for a 2 MB primary tier above other tiers."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": 2 << 20,
            "secondary_tiers": tiers,
            **extra,
            "spec_name": "CpuTieringSpec",
            "spec_module_path": CpuTieringSpec.__module__,
        },
    }


class Engine:
    """An engine and the tiers below it."""

    def __init__(self, llm):
        self.llm = llm
        self.core = llm.llm_engine.engine_core.engine_core
        connector = self.core.scheduler.connector
        self.manager = connector and connector.connector_scheduler.manager
        self.tiers = [] if connector is None else self.manager.secondary_tiers

    def generate(self, prompts):
        """Return, for each prompt, the tokens that follow it and how many were cached."""
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], GREEDY, use_tqdm=False
        )
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        return tokens, [output.num_cached_tokens for output in outputs]

    def one_by_one(self, prompts=PROMPTS):
        """As `generate`, each prompt submitted when the one before it has its answer."""
        results = [self.generate([prompt]) for prompt in prompts]
        return [tokens[0] for tokens, _ in results], [cached[0] for _, cached in results]

    def settle(self):
        """Step until no block is on its way to or from a tier."""
        while self.core.scheduler.connector.has_pending_push_work():
            self.core.step()


@contextmanager
def running_engine(model, kv_transfer_config=None):
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    llm = LLM(
        model=model,
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=1024,
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=64,
        max_num_seqs=8,
        disable_log_stats=False,
        kv_transfer_config=kv_transfer_config,
    )
    try:
        yield Engine(llm)
    finally:
        llm.llm_engine.engine_core.shutdown()
