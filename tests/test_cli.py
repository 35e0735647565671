import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import kvreg
from kvreg import cli
from kvreg.cli import main
from kvreg.replay.clock import TIMESTAMP_UNITS
from kvreg.replay.workload import generate_workload
from kvreg.tiering._host import EVICTION_POLICIES
from tests.conftest import tier_class_of_host
from tests.replay.faulty_tiers import InterruptedTier

SMALL = ["--block-bytes", "1KiB", "--primary-blocks", "100", "--host-capacity", "512KiB"]
REPORT_FIELDS = {
    *("requests", "blocks", "prefix_hits", "prefix_hit_rate", "stored", "loaded", "evictions"),
    *("failed_jobs", "partial_jobs", "lost_jobs", "corrupted_blocks"),
    *("scheduler_us_per_request", "wait_s", "wall_s", "trace"),
}
TIMED_FIELDS = {"scheduler_us_per_request", "wait_s", "wall_s"}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    requests = [[1, 2, 3], [4, 5, 6], [1, 2, 3], [1, 2, 7]]
    path.write_text("".join(json.dumps({"hash_ids": ids}) + "\n" for ids in requests))
    return str(path)


def replay_json(capsys, *options):
    assert main(["replay", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def assert_one_line_error(capsys, *parts):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kvreg replay: error: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


@pytest.mark.usefixtures("host_tier")
def test_without_a_trace_it_replays_the_built_in_workload(capsys):
    report = replay_json(capsys)
    assert report.keys() == REPORT_FIELDS
    assert report["requests"] == 2000
    assert report["prefix_hits"]["host"] > 1000
    assert report["evictions"] > 1000
    assert report["corrupted_blocks"] == report["lost_jobs"] == 0
    assert report["trace"] is None


@pytest.mark.usefixtures("host_tier")
def test_two_runs_report_the_same_but_for_time(capsys):
    reports = [replay_json(capsys, *SMALL, "--limit", "300") for _ in range(2)]
    for report in reports:
        for field in TIMED_FIELDS:
            del report[field]
        for direction in ("stored", "loaded"):
            del report[direction]["gb_per_s"]
    assert reports[0] == reports[1]


@pytest.mark.usefixtures("host_tier")
def test_a_trace_is_replayed_with_the_options_given(capsys, trace):
    options = ["--block-bytes", "4096", "--primary-blocks", "3", "--host-capacity", "24KiB"]
    report = replay_json(
        capsys, *options, "--num-threads", "1", "--eviction-policy", "lru", trace
    )
    assert report["requests"] == 4
    assert report["blocks"] == 12
    assert report["prefix_hits"] == {"primary": 2, "host": 3}
    assert report["stored"]["blocks"] == 7
    assert report["stored"]["bytes"] == 7 * 4096
    assert report["evictions"] == 1


@pytest.mark.usefixtures("host_tier")
def test_each_eviction_policy_can_be_chosen(capsys):
    assert set(EVICTION_POLICIES) == {"krl", "lru", "s3fifo"}
    options = ["--primary-blocks", "100", "--host-capacity", "32MiB", "--limit", "300"]
    hits = {
        replay_json(capsys, *options, "--eviction-policy", policy)["prefix_hits"]["host"]
        for policy in EVICTION_POLICIES
    }
    assert len(hits) == 3


SWEEP = ["--block-bytes", "1KiB", "--primary-blocks", "100", "--limit", "300"]


def test_a_sweep_reports_every_policy_at_every_capacity_beside_the_optimum(capsys, tmp_path):
    picture = tmp_path / "sweep.svg"
    options = ["--sweep-capacity", "1MiB,256KiB", "--eviction-policy", "lru,s3fifo,krl"]
    points = replay_json(capsys, *SWEEP, *options, "--plot", str(picture))
    assert [(p["host_blocks"], p["eviction_policy"]) for p in points] == [
        (blocks, policy)
        for blocks in (256, 1024)
        for policy in ("lru", "s3fifo", "krl", "optimum")
    ]
    assert "<svg" in picture.read_text()
    assert main(["replay", *SWEEP, *options]) == 0
    assert "no block was copied" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--eviction-policy", "lru,krl"], ["lru, krl", "--sweep-capacity"]),
        (["--plot", "a.png"], ["--plot a.png", "--sweep-capacity"]),
        (["--sweep-capacity", "100B,1MiB"], ["100 bytes", "one block of 65536 bytes"]),
        (["--sort"], ["--sort", "needs TRACE"]),
        (["--timestamp-unit", "ms"], ["--timestamp-unit", "needs TRACE"]),
        (["--tokens-per-block", "off"], ["--tokens-per-block", "needs TRACE"]),
    ],
)
def test_options_that_do_not_go_together_are_refused(capsys, options, parts):
    assert main(["replay", *options]) == 2
    assert_one_line_error(capsys, *parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--sweep-capacity", "1MiB,,2MiB"], ["--sweep-capacity", "''"]),
        (["--sweep-capacity", "1MiB,0"], ["at least 1 byte", "'0'"]),
    ],
)
def test_bad_lists_are_refused(capsys, options, parts):
    with pytest.raises(SystemExit) as error:
        main(["replay", *options])
    assert error.value.code == 2
    text = capsys.readouterr().err
    assert all(part in text for part in parts)


@pytest.fixture
def no_sweep(monkeypatch):
    """Fail where a sweep begins."""

    def fail(*_):
        pytest.fail("the sweep began")

    monkeypatch.setattr(cli, "Sweep", fail)


@pytest.mark.usefixtures("no_sweep")
def test_a_plot_without_matplotlib_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["replay", "--sweep-capacity", "1MiB", "--plot", "a.png"]) == 2
    assert_one_line_error(capsys, "matplotlib", "kvreg[cli]")


@pytest.mark.usefixtures("no_sweep")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.oops", "ending must be one of"),
        ("picture", "ending must be one of"),
        ("picture.", "ending must be one of"),
        (".png", "ending must be one of"),
        ("", "ending must be one of"),
        ("missing/a.png", "No such file or directory"),
        ("folder.png", "Is a directory"),
        ("file/a.png", "Not a directory"),
        ("a" * 300 + ".png", "File name too long"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_told_before_the_sweep(
    capsys, tmp_path, monkeypatch, name, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    assert main(["replay", *SWEEP, "--sweep-capacity", "1MiB", "--plot", name]) == 2
    assert_one_line_error(capsys, f"cannot draw {name!r}: ", reason)
    assert {path.name for path in tmp_path.iterdir()} == {"folder.png", "file"}


@pytest.mark.usefixtures("no_sweep")
def test_a_kind_of_picture_that_this_machine_cannot_make_is_told_before_the_sweep(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "a.pgf"
    assert main(["replay", *SWEEP, "--sweep-capacity", "1MiB", "--plot", str(path)]) == 2
    assert_one_line_error(capsys, f"cannot draw {str(path)!r}: ", "xelatex")
    assert not path.exists()


def test_a_picture_that_is_there_is_kept_until_the_new_one_is_drawn(
    capsys, tmp_path, monkeypatch
):
    path = tmp_path / "a.SVG"
    path.write_text("old")
    points = cli.Sweep.points

    def look(sweep):
        assert path.read_text() == "old"
        return points(sweep)

    monkeypatch.setattr(cli.Sweep, "points", look)
    assert main(["replay", *SWEEP, "--sweep-capacity", "1MiB", "--plot", str(path)]) == 0
    assert "<svg" in path.read_text()


def test_a_picture_that_fails_at_the_end_is_an_error_after_the_report(capsys, tmp_path):
    path = tmp_path / "a.png"
    path.symlink_to("/dev/full")
    assert main(["replay", *SWEEP, "--sweep-capacity", "1MiB", "--plot", str(path)]) == 3
    captured = capsys.readouterr()
    assert captured.err.startswith(f"kvreg replay: error: cannot draw {str(path)!r}: ")
    assert captured.err.count("\n") == 1
    assert "optimum" in captured.out


@pytest.mark.usefixtures("host_tier")
def test_limit_keeps_the_first_requests(capsys, trace):
    assert replay_json(capsys, *SMALL, "--limit", "2", trace)["requests"] == 2
    assert replay_json(capsys, *SMALL, "--limit", "7")["requests"] == 7


@pytest.mark.usefixtures("host_tier")
def test_without_json_the_report_is_a_page_and_nothing_else_is_written(capsys, trace):
    assert main(["replay", *SMALL, trace]) == 0
    captured = capsys.readouterr()
    assert "prefix hits" in captured.out
    assert captured.err == ""


@pytest.mark.usefixtures("host_tier")
def test_a_terminal_gets_a_progress_bar(monkeypatch, capsys, trace):
    def bar(requests, **_):
        sys.stderr.write(f"{len(requests)} to go")
        return requests

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=bar))
    assert main(["replay", *SMALL, trace]) == 0
    assert capsys.readouterr().err == "4 to go"


@pytest.mark.usefixtures("host_tier")
def test_without_tqdm_a_terminal_gets_none(monkeypatch, capsys, trace):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert main(["replay", *SMALL, trace]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("tier", "field"), [("CorruptingTier", "corrupted_blocks"), ("LosingTier", "lost_jobs")]
)
def test_corrupted_blocks_and_lost_jobs_exit_with_1(capsys, tier, field):
    with tier_class_of_host("tests.replay.faulty_tiers", tier):
        assert main(["replay", "--json", *SMALL, "--limit", "300"]) == 1
    assert json.loads(capsys.readouterr().out)[field] > 0


def test_a_load_that_fails_is_no_reason_to_exit_with_1(capsys):
    with tier_class_of_host("tests.replay.faulty_tiers", "ForgettingTier"):
        report = replay_json(capsys, *SMALL, "--limit", "300")
    assert report["partial_jobs"] > 0


def test_an_interrupt_shuts_the_tier_down_and_exits_with_130(capsys):
    shutdowns = InterruptedTier.shutdowns
    # A process that was started in the background may ignore the signal.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tier_class_of_host("tests.replay.faulty_tiers", "InterruptedTier"):
            assert main(["replay", *SMALL]) == 130
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert InterruptedTier.shutdowns == shutdowns + 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "kvreg: interrupted\n"


def test_a_bad_trace_line_is_named_by_file_and_line(capsys, trace):
    with open(trace, "a") as file:
        file.write("oops\n")
    assert main(["replay", trace]) == 2
    assert_one_line_error(capsys, f"{trace}:5: not JSON")


def test_a_trace_without_requests_is_an_error(capsys, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    assert main(["replay", str(path)]) == 2
    assert_one_line_error(capsys, f"{path}: no requests")


@pytest.mark.parametrize(
    ("name", "reason"), [("absent.jsonl", "No such file"), (".", "Is a directory")]
)
def test_a_trace_that_cannot_be_opened_is_an_error(capsys, tmp_path, name, reason):
    path = str(tmp_path / name)
    assert main(["replay", path]) == 2
    assert_one_line_error(capsys, path.removesuffix("/."), reason)


@pytest.fixture
def timed_trace(tmp_path):
    """In seconds, two requests in one; time goes back once; every last block is partial."""
    path = tmp_path / "timed.jsonl"
    requests = [
        {"timestamp": i % 40 / 2, "input_length": 513, "hash_ids": [i % 7, 100 + i]}
        for i in range(80)
    ]
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return str(path)


def test_what_was_found_out_of_a_trace_is_told(capsys, timed_trace):
    assert main(["replay", "--json", *SMALL, timed_trace]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["trace"] == {
        "timestamp_unit": "s",
        "timestamp_unit_reason": "with a mean gap of 0.247, ms would be over 1,000 requests a "
        "second",
        "steps_back": 1,
        "sorted": False,
        "tokens_per_block": 512,
        "tokens_per_block_reason": "fits every input_length",
        "partial_blocks": 80,
    }
    unit, order = captured.err.splitlines()
    warning = f"kvreg replay: warning: {timed_trace}"
    assert unit.startswith(f"{warning}: timestamps are taken as s: ")
    assert order.startswith(f"{warning}:41: time goes back by 19.5 s, once; --sort")


def test_what_is_told_of_a_trace_is_not_guessed(capsys, timed_trace):
    options = ["--timestamp-unit", "ms", "--sort", "--tokens-per-block", "off"]
    assert main(["replay", "--json", *SMALL, timed_trace, *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(captured.out)
    assert report["trace"] == {
        "timestamp_unit": "ms",
        "timestamp_unit_reason": "as told",
        "steps_back": 1,
        "sorted": True,
        "tokens_per_block": None,
        "tokens_per_block_reason": "as told",
        "partial_blocks": 0,
    }
    assert report["blocks"] == 160


def test_two_equal_requests_of_513_tokens_find_512_of_them(capsys, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 513, "hash_ids": [1, 2]}\n' * 2)
    report = replay_json(capsys, *SMALL, str(path))
    assert report["prefix_hits"] == {"primary": 1, "host": 0}


def test_a_sweep_tells_how_the_trace_was_read(capsys, timed_trace):
    options = [*SWEEP, "--sweep-capacity", "256KiB", "--sort", timed_trace]
    assert main(["replay", *options]) == 0
    text = capsys.readouterr().out
    assert "timestamps         s (" in text
    assert "tokens a block     512 (" in text
    assert [point["trace"]["partial_blocks"] for point in replay_json(capsys, *options)] == [
        80,
        80,
    ]


def test_hits_do_not_depend_on_the_unit_of_the_timestamps(capsys, tmp_path):
    paths = {unit: tmp_path / f"{unit}.jsonl" for unit in ("s", "ms")}
    for unit, path in paths.items():
        with path.open("w") as file:
            for request in generate_workload()[:300]:
                # One in 20 seconds.
                timestamp = (20 * request.seconds + 0.25) * TIMESTAMP_UNITS[unit]
                line = {"timestamp": timestamp, "hash_ids": request.hash_ids}
                file.write(json.dumps(line) + "\n")
    options = [*SWEEP, "--sweep-capacity", "128KiB", "--eviction-policy", "krl"]
    points = {unit: replay_json(capsys, *options, str(path)) for unit, path in paths.items()}
    assert {unit: krl["trace"]["timestamp_unit"] for unit, (krl, _) in points.items()} == {
        "s": "s",
        "ms": "ms",
    }
    assert points["s"][0]["prefix_hit_rate"] == points["ms"][0]["prefix_hit_rate"]
    told = replay_json(capsys, *options, "--timestamp-unit", "ms", str(paths["s"]))
    assert told[0]["prefix_hit_rate"] != points["ms"][0]["prefix_hit_rate"]


@pytest.mark.usefixtures("host_tier")
@pytest.mark.parametrize(
    "options",
    [
        ["--host-capacity", "1"],
        ["--primary-blocks", "999999999999"],
        ["--primary-blocks", "99999999999999999999999"],
        ["--block-bytes", "99999999TiB"],
    ],
)
def test_tiers_that_cannot_be_created_are_an_error(capsys, options):
    assert main(["replay", *options]) == 2
    assert_one_line_error(capsys)


def test_more_host_memory_than_the_machine_has_is_an_error(capsys):
    assert main(["replay", "--host-capacity", "1048576TiB"]) == 2
    assert_one_line_error(capsys, "capacity")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--block-bytes", "64KB"], "64KB"),
        (["--block-bytes", "0"], "at least 1 byte"),
        (["--host-capacity", "-1"], "got '-1'"),
        (["--host-capacity", "lots"], "KiB, MiB, GiB or TiB"),
        (["--primary-blocks", "0"], "1 or more; got '0'"),
        (["--num-threads", "two"], "1 or more; got 'two'"),
        (["--eviction-policy", "psychic"], "known are krl, lru, s3fifo"),
        (["--limit", "1.5"], "1 or more; got '1.5'"),
        (["--timestamp-unit", "min"], "'s', 'ms', 'us', 'ns'"),
        (["--tokens-per-block", "0"], "1 or more; got '0'; or auto or off"),
        (["--limit", "9" * 5000], "too many digits: 5000"),
        (["--unknown"], "unrecognized"),
    ],
)
def test_bad_options_exit_with_2_and_say_why(capsys, options, reason):
    with pytest.raises(SystemExit) as exit_:
        main(["replay", *options])
    assert exit_.value.code == 2
    assert reason in capsys.readouterr().err


def test_help_gives_units_and_defaults(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["replay", "--help"])
    assert exit_.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for default in ("64KiB", "1000", "256MiB", "lru", "all", "built-in"):
        assert f"default: {default}" in text or f"default: a {default}" in text
    assert "suffix B, KiB, MiB, GiB or TiB" in text


def test_running_out_of_memory_is_an_error_that_says_so(capsys, monkeypatch):
    def out_of_memory(*_):
        raise MemoryError

    monkeypatch.setattr(cli, "Engine", out_of_memory)
    assert main(["replay"]) == 2
    assert_one_line_error(capsys, "out of memory")


# -- Standard streams of a process of its own -----------------------------------------------


def replay_in_shell(redirections, *options):
    """Replay with the shell's redirections."""
    command = f'exec "$@" {redirections}'
    words = [sys.executable, "-m", "kvreg", "replay", *SMALL, *options]
    return subprocess.run(
        ["sh", "-c", command, "sh", *words], capture_output=True, text=True, check=False
    )


def test_a_trace_is_read_from_standard_input(trace):
    done = replay_in_shell(f"< {trace}", "--json", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["requests"] == 4
    done = replay_in_shell("< /dev/null", "-")
    assert done.returncode == 2
    assert done.stderr == "kvreg replay: error: <stdin>: no requests\n"
    done = replay_in_shell("<&-", "-")
    assert done.returncode == 2
    assert done.stderr == "kvreg replay: error: <stdin>: standard input is closed\n"


def test_a_closed_standard_output_is_told_before_any_work(trace):
    done = replay_in_shell(">&-", f"{trace}.absent")
    assert done.returncode == 3
    assert "output is closed" in done.stderr


def test_a_reader_that_closes_the_pipe_is_no_error(trace):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kvreg", "replay", *SMALL, trace],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left"), (">&-", "output is closed")]
)
def test_a_report_that_cannot_be_written_exits_with_3(trace, redirection, reason):
    done = replay_in_shell(redirection, "--json", trace)
    assert done.returncode == 3
    assert done.stderr.startswith("kvreg replay: error: cannot write the report: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_without_a_standard_error_the_report_and_the_exit_code_are_the_same(trace, redirection):
    done = replay_in_shell(redirection, "--json", trace)
    assert done.returncode == 0
    assert json.loads(done.stdout)["requests"] == 4
    done = replay_in_shell(redirection, f"{trace}.absent")
    assert (done.returncode, done.stdout) == (2, "")


def test_python_m_kvreg_is_the_same_command():
    command = [sys.executable, "-m", "kvreg", "replay", "--limit", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "kvreg replay: error: argument --limit" in done.stderr


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"kvreg {kvreg.__version__}\n"
