"""Small notebooks for tests."""

import json


def cell(source, *tags, kind="code"):
    """One cell, never executed."""
    shared = {"cell_type": kind, "metadata": {"tags": tags}, "source": source, "id": f"c{abs(hash(source))}"}
    return shared | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def write_notebook(path, *cells, **metadata):
    """Writes a notebook and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}))
    return path
