import hashlib

from kvreg.replay.workload import generate_workload


def test_it_is_the_same_in_every_run_and_on_every_python():
    text = repr([request.hash_ids for request in generate_workload()])
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "b3bf8c57484cb5929029b526a7e1959ba65d8c45ee875ae91b65bed9d3583c6b"
    )


def test_an_id_always_follows_the_same_prefix():
    prefix_of = {}
    for request in generate_workload():
        for position, block in enumerate(request.hash_ids):
            prefix = request.hash_ids[:position]
            assert prefix_of.setdefault(block, prefix) == prefix
