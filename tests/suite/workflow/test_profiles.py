"""Dry runs with the profiles of clusters: what each job would ask Slurm and Kubernetes for. No cluster is at hand."""

import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tcnaps_suite.workflow import stopping
from tcnaps_suite.workflow.batch import main

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def planned(profile):
    """What Snakemake itself prints of the miniature's jobs in a dry run with a profile, by rule."""
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--forceall", "--printshellcmds", "--nolock"]
    command += ["--workflow-profile", f"profiles/{profile}"]
    command += ["--config", "study=configs/miniature.yaml", "device=cuda", "processes=2"]
    path = os.pathsep.join([*stopping.plugins(), str(ROOT)])
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    blocks = re.findall(r"^rule (\w+):\n((?:    .*\n)+\n?.*)", done.stderr + done.stdout, flags=re.MULTILINE)
    return {name: text for name, text in blocks if "batch notebook" in text}


def test_jobs_that_train_ask_slurm_for_gpus_and_each_gets_its_own_parameters():
    jobs = planned("slurm")
    assert {"pretrain", "meta_train_support", "evaluate_support", "accuracy"} <= jobs.keys()
    for name, text in jobs.items():
        trains = name.startswith(("pretrain", "meta_train", "evaluate"))
        assert ("gpu=2" in text) == trains, name
        assert "mem_mb=" in text and "runtime=" in text, name
        assert "device cuda" in text and "processes 2" in text, text
    for training in ("support", "support_and_query_refined"):
        assert f"-p training '{training}'" in jobs[f"meta_train_{training}"]
    assert "-p start 'variable-before-training' -p evaluation 'variable'" in jobs["before_and_after"]


def test_jobs_of_kubernetes_run_in_the_project_on_the_shared_volume():
    assert "gpu_manufacturer=nvidia" in planned("kubernetes")["meta_train_support"].replace("'", "")
    profile = yaml.safe_load((ROOT / "profiles/kubernetes/config.yaml").read_text())
    claim, path = profile["kubernetes-shared-persistent-volumes"][0].split(":")
    assert profile["precommand"].startswith(f"cd {path}/") and claim


def test_the_executor_for_kubernetes_is_told_that_files_are_shared():
    from tcnaps_suite.workflow.plugins.cluster.snakemake_executor_plugin_kubernetes_shared import common_settings

    assert not common_settings.implies_no_shared_fs


def test_an_unknown_profile_is_an_error(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["study", "configs/miniature.yaml", "--dry-run", "--profile", "slrum"]) == 2
    assert "did you mean 'slurm'?" in capsys.readouterr().err


def test_without_the_plugin_of_kubernetes_snakemake_finds_none_that_needs_it(monkeypatch):
    monkeypatch.setattr(stopping, "find_spec", lambda name: None)
    found = [module.name for module in pkgutil.iter_modules(stopping.plugins())]
    assert "snakemake_logger_plugin_bar" in found
    assert not [name for name in found if name.startswith("snakemake_executor")]  # it would be imported, and fail
