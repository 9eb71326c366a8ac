"""A study's YAML as frozen, validated objects."""

from tcnaps.config.errors import ConfigError, UserError
from tcnaps.config.settings import FixedProtocol, VariableProtocol
from tcnaps.config.study import Study, load_study, project_root

__all__ = ["ConfigError", "FixedProtocol", "Study", "UserError", "VariableProtocol", "load_study", "project_root"]
