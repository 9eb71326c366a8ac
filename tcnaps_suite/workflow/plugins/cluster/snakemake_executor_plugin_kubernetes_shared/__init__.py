"""Snakemake's executor for Kubernetes, for pods that share one volume with the machine that starts them.

The executor itself takes for granted that nothing is shared and then uploads every file.
"""

from dataclasses import replace

from snakemake_executor_plugin_kubernetes import Executor, ExecutorSettings, common_settings as without_sharing

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = replace(without_sharing, implies_no_shared_fs=False)
