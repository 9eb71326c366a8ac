"""Dry runs with the profiles of clusters: what each job would ask Slurm and Kubernetes for. No cluster is at hand."""

import logging
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

from tcnaps_suite.workflow.batch import main
from tcnaps_suite.workflow.run import run_study

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """What a dry run reads of the project, without data and results."""
    for name in ("Snakefile", "configs", "notebooks", "profiles", "results/published"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def jobs():
    """Threads and resources of the jobs that Snakemake tells of, by rule."""
    found, logger = {}, logging.getLogger("snakemake.logging")

    def note(record):
        if getattr(record, "event", None) == "job_info":
            found[record.rule_name] = SimpleNamespace(threads=record.threads, resources=record.resources)
        return True

    logger.addFilter(note)  # before the plan's own, which lets nothing of it pass
    yield found
    logger.removeFilter(note)


def planned(capsys, study, profile, device="cuda"):
    """The table of a plan: the cells of each job."""
    assert run_study(study, dry_run=True, device=device, profile=profile) == 0
    printed = capsys.readouterr().out
    lines = (re.split(r"  +", line) for line in printed.splitlines())
    return {name: cells for name, *cells in lines if len(cells) >= 4}, printed


def test_a_plan_for_slurm_says_what_sbatch_is_told(project, jobs, capsys):
    table, printed = planned(capsys, "configs/meta-dataset.yaml", "slurm")
    assert table["job"][:4] == ["threads", "memory", "time limit", "GPUs"]
    assert table["pretrain"] == ["2", "5.8 GB", "24:00 h", "1", "?", "?", "(1)"]
    assert table["meta_train_support"][:4] == ["1", "10.0 GB", "24:00 h", "1"]
    assert "To be added: 1 whose images can't be counted" in printed and "ilsvrc_2012: records" in printed
    assert len(table) - 1 == len(jobs.keys() - {"all"}) == 21
    names = "run_uuid slurm_logfile comment_str account partition workdir"
    facts = dict.fromkeys(names.split(), "x")
    calls = {name: get_submit_command(job, facts) + set_gres_string(job) for name, job in jobs.items() if name != "all"}
    assert all(" --mem " in call and " -t " in call for call in calls.values())
    assert re.search(r"-t 1440 --mem 5800 --cpus-per-task=2 .*--gpus=1$", calls["pretrain"]), calls["pretrain"]
    assert "-t 60 --mem 12700 " in calls["claims"] and "gpu" not in calls["claims"]
    assert "--cpus-per-task=1" in calls["claims"]


def test_a_plan_for_kubernetes_has_limits_and_the_manufacturer_of_gpus(project, jobs, capsys):
    table, _ = planned(capsys, "configs/mini-imagenet.yaml", "kubernetes")
    assert table["meta_train_support"][:4] == ["1", "2.5 GB", "1:45 h", "1"]
    asked = dict(jobs["meta_train_support"].resources.items())
    assert (asked["gpu"], asked["gpu_manufacturer"], asked["scale"]) == (1, "nvidia", False)
    profile = yaml.safe_load((project / "profiles/kubernetes/config.yaml").read_text())
    claim, path = profile["kubernetes-persistent-volumes"][0].split(":")
    assert profile["precommand"].startswith(f"cd {path}/") and claim


def test_without_a_gpu_no_job_asks_for_one_and_the_time_is_that_of_cores(project, capsys, monkeypatch):
    monkeypatch.setattr("tcnaps_suite.workflow.prepare.sizes", lambda study: {"mini-imagenet": {"train": (64, 2_560)}})
    table, _ = planned(capsys, "configs/mini-imagenet.yaml", "slurm", device="cpu")
    assert {cells[3] for name, cells in table.items() if name != "job"} == {"0"}
    assert table["meta_train_support"][2] == "24:00 h"
    hours = 90 * 2_560 / 13.5 / 3600  # on one core; the job has two, and is given six times as long
    assert table["pretrain"][2:5] == ["14:15 h", "0", f"{hours:.2f}"]


def test_unknown_profiles_and_missing_executors_are_errors(project, capsys, monkeypatch):
    assert main(["study", "configs/miniature.yaml", "--dry-run", "--profile", "slrum"]) == 2
    assert "There is no profile 'slrum' in profiles/; did you mean 'slurm'?" in capsys.readouterr().err
    (project / "profiles" / "other").mkdir()
    (project / "profiles" / "other" / "config.yaml").write_text("executor: some-grid\n")
    assert main(["study", "configs/miniature.yaml", "--dry-run", "--profile", "other"]) == 2
    assert "needs the package snakemake-executor-plugin-some-grid: pip install" in capsys.readouterr().err
