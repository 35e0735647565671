"""Builds the extension modules; everything else about the package stands in pyproject.toml."""

from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

INCLUDE = ["csrc", "csrc/include"]
HEADERS = sorted(glob("csrc/**/*.h", recursive=True))
# No -march: one wheel runs on every CPU of its architecture, and the copy kernels carry their
# own target attributes.
COMPILE = ["-std=c11", "-O3", "-fvisibility=hidden", "-pthread"]

CORE = [
    "csrc/copy.c",
    "csrc/copy_choose.c",
    "csrc/copy_neon.c",
    "csrc/copy_portable.c",
    "csrc/copy_x86.c",
    "csrc/os.c",
    "csrc/transfer.c",
]
TIER = [
    *CORE,
    "csrc/backend_dram.c",
    "csrc/cache.c",
    "csrc/crc32c.c",
    "csrc/events.c",
    "csrc/index.c",
    "csrc/policy.c",
    "csrc/policy_krl.c",
    "csrc/policy_lru.c",
    "csrc/policy_s3fifo.c",
    "csrc/prefault.c",
    "csrc/tier.c",
]
REGISTRY_FRONTS = [
    "csrc/python/dict_version.c",
    "csrc/python/front.c",
    "csrc/python/type_tag.c",
]


def extension(module: str, c_sources: list[str]) -> Extension:
    """One Cython module and the C files below it."""
    return Extension(
        module,
        sources=["src/" + module.replace(".", "/") + ".pyx", *c_sources],
        include_dirs=INCLUDE,
        depends=HEADERS,
        extra_compile_args=COMPILE,
        extra_link_args=["-pthread"],
    )


setup(
    ext_modules=cythonize(
        [
            extension("kvreg.specs", ["csrc/python/type_tag.c"]),
            extension("kvreg.buffer_format", []),
            extension("kvreg.core_error", []),
            extension("kvreg.block_copy", [*CORE, "csrc/copy_threads.c"]),
            extension("kvreg.row_ids", []),
            extension("kvreg.tiering._host", TIER),
            extension("kvreg.vllm._registry", REGISTRY_FRONTS),
        ],
        include_path=["src"],
        build_dir="build/cython",
        compiler_directives={"language_level": 3},
    )
)
