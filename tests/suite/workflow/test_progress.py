"""What is shown of a run, and what it says about the time that is left, from times planted in a study's table."""

import logging

import pytest

from tcnaps_suite.workflow import progress
from tcnaps_suite.workflow.progress import Progress, read_times

TIMES = "job,seconds,threads\naccuracy,60,1\npretrain,600,2\ntrain,1200,1\n"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def told(follower, level=logging.INFO, **facts):
    record = logging.makeLogRecord({"levelno": level} | facts)
    return follower.filter(record)


def started(follower, number, name, threads=1):
    return told(follower, event="job_info", jobid=number, rule_name=name, threads=threads)


def test_the_time_left_is_that_of_the_last_run_shared_by_the_cores(tmp_path, clock, capsys):
    (tmp_path / "times.csv").write_text(TIMES)
    follower = Progress(tmp_path / "times.csv", cores=2)
    told(follower, event="run_info", stats={"all": 1, "accuracy": 1, "pretrain": 1, "train": 1, "total": 4})
    assert capsys.readouterr().out == "3 jobs: about 20 minutes on 2 cores, by the last times\n"  # 60 + 1200 + 1200
    started(follower, 4, "pretrain", threads=2)
    clock[0] = 300.0
    started(follower, 7, "train")
    assert capsys.readouterr().out.splitlines()[-1] == "Started train: about 16 minutes left"  # 60 + 600 + 1200
    clock[0] = 900.0
    told(follower, event="job_finished", job_id=4)
    assert capsys.readouterr().out == "Finished pretrain in about 15 minutes, 2 jobs left: about 6 minutes left\n"
    assert "pretrain,900,2," in (tmp_path / "times.csv").read_text().splitlines()


def test_a_first_run_promises_nothing_and_notes_what_jobs_take(tmp_path, clock, capsys):
    follower = Progress(tmp_path / "times.csv", cores=1)
    told(follower, event="run_info", stats={"all": 1, "accuracy": 1, "total": 2})
    started(follower, 1, "accuracy")
    clock[0] = 42.0
    told(follower, event="job_finished", job_id=1)
    told(follower, event="job_finished", job_id=0)  # the target, which is no job
    assert capsys.readouterr().out == "1 job\nStarted accuracy\nFinished accuracy in 42 s, 0 jobs left\n"
    assert (tmp_path / "times.csv").read_text() == "job,seconds,threads,arithmetic\naccuracy,42,1,\n"


def test_a_job_that_has_grown_since_is_forecast_to_take_longer(tmp_path, clock, capsys):
    sizes = {"train": 30.0, "pretrain": 0.25}
    first = Progress(tmp_path / "times.csv", cores=1, arithmetic=sizes.get)
    told(first, event="run_info", stats={"accuracy": 1, "pretrain": 1, "train": 1})
    for number, job in enumerate(("accuracy", "pretrain", "train")):
        started(first, number, job)
        clock[0] += 60
        told(first, event="job_finished", job_id=number)
    assert "train,60,1,30" in (tmp_path / "times.csv").read_text().splitlines()
    capsys.readouterr()
    sizes["train"] = 300.0
    follower = Progress(tmp_path / "times.csv", cores=1, arithmetic=sizes.get)
    told(follower, event="run_info", stats={"accuracy": 1, "pretrain": 1, "train": 1})
    assert capsys.readouterr().out == "3 jobs: about 12 minutes on 1 cores, by the last times\n"  # 60 + 60 + 600


def test_a_job_that_goes_on_keeps_the_time_of_its_last_whole_run(tmp_path, clock, capsys):
    (tmp_path / "times.csv").write_text(TIMES)
    stats = {"accuracy": 1, "pretrain": 1, "train": 1}
    killed = Progress(tmp_path / "times.csv", cores=1)
    told(killed, event="run_info", stats=stats)
    started(killed, 1, "pretrain", threads=2)
    started(killed, 2, "train")
    told(killed, logging.ERROR, event="job_error", jobid=2)
    for expected in ("600", "5"):  # the last piece of it, then a whole run
        follower = Progress(tmp_path / "times.csv", cores=1)
        told(follower, event="run_info", stats=stats)
        for number, name in enumerate(stats):
            started(follower, number, name)
            clock[0] += 5
            told(follower, event="job_finished", job_id=number)
        table = (tmp_path / "times.csv").read_text().splitlines()
        assert table[1] == "accuracy,5,1," and table[2].startswith(f"pretrain,{expected},")
        assert "Finished pretrain in 5 s, 1 job left" in capsys.readouterr().out
    assert table[3] == "train,5,1,"


@pytest.mark.parametrize("content", [b"job\npretrain", b"job,seconds,threads\npretrain,x,1\n", b"job\n\xff,1,1\n"])
def test_a_damaged_table_of_times_is_ignored_with_one_line(tmp_path, clock, capsys, content):
    (tmp_path / "times.csv").write_bytes(content)
    follower = Progress(tmp_path / "times.csv", cores=1)
    told(follower, event="run_info", stats={"pretrain": 1})
    said = capsys.readouterr()
    assert said.err.startswith(f"{tmp_path / 'times.csv'} is damaged and ignored") and said.err.count("\n") == 1
    assert said.out == "1 job\n"


def test_only_warnings_and_errors_pass_and_not_what_a_job_has_said_itself(tmp_path, clock):
    follower = Progress(tmp_path / "times.csv", cores=1)
    assert not told(follower, msg="Building DAG of jobs...")
    assert told(follower, logging.ERROR, event="error", exception="WorkflowError")
    assert told(follower, logging.WARNING)
    told(follower, event="run_info", stats={"accuracy": 1, "total": 1})
    started(follower, 1, "accuracy")
    assert not told(follower, logging.ERROR, event="job_error", jobid=1)
    assert not told(follower, logging.ERROR, event="error", exception="RuleException")
    assert not (tmp_path / "times.csv").exists()  # a failed job has no time


@pytest.mark.parametrize(
    "content",
    [
        "",
        "job,seconds\na,1\n",
        "job,seconds,threads\na,,1\n",
        "job,seconds,threads\na,nan,1\n",
        "\0",
        "job,seconds,threads,arithmetic\na,1,1,x\n",
        "job,seconds,threads,arithmetic\na,1,1,-2\n",
    ],
)
def test_damaged_times_stop_no_run(tmp_path, clock, content):
    (tmp_path / "times.csv").write_text(content)
    assert read_times(tmp_path / "times.csv", lambda job: 1.0) == {}
    told(Progress(tmp_path / "times.csv", cores=1), event="run_info", stats={"accuracy": 1, "total": 1})
