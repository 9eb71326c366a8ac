"""A study's YAML as frozen, validated objects."""

from tcnaps.config.study import ConfigError, FixedProtocol, Study, VariableProtocol, load_study, project_root

__all__ = ["ConfigError", "FixedProtocol", "Study", "VariableProtocol", "load_study", "project_root"]
