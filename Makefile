# `make` alone lists what there is. Needs make and Python 3.11 or newer; everything else is installed into .venv.

PYTHON ?= python3
STUDY ?= configs/miniature.yaml

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# With either of these set, Jupyter may prefer another installation's kernel to the one in .venv.
unexport JUPYTER_PATH JUPYTER_PREFER_ENV_PATH

.PHONY: help figures plan watch differences rivals active demonstration lint test test-browser fuzz report docs lab serve bench clean force

help:
	@echo "make figures [STUDY=configs/miniature.yaml] [CORES=n] [DEVICE=cuda] [WORKERS=n] [PROCESSES=n] [PROFILE=slurm]"
	@echo "             train, evaluate and draw every figure and table of a study; only what is stale"
	@echo "             WORKERS: processes that read images ahead, for each training or evaluation"
	@echo "             PROCESSES: processes that share each training and each evaluation; GPUs one each"
	@echo "             PROFILE: run the jobs on a cluster, as profiles/<name>/ says (docs/scaling.md)"
	@echo "make plan [STUDY=...] [DEVICE=cuda] [PROFILE=slurm]"
	@echo "             list what 'make figures' would do: the jobs, what each asks for, about how many hours it takes and"
	@echo "             why; and what data is there or missing"
	@echo "make watch [STUDY=...]"
	@echo "             see how the trainings of a study go, in TensorBoard   (ARGS=... goes to TensorBoard)"
	@echo "make differences [STUDY=...]"
	@echo "             what each difference between the paper and its released code costs: 14 short trainings, an hour or more"
	@echo "make rivals [STUDY=...]"
	@echo "             other classifiers and heads on the study's features, also where queries are out of balance: an hour or more"
	@echo "make active [STUDY=...]"
	@echo "             active and continual learning with the study's models: a quarter of an hour"
	@echo "make report [STUDY=...]"
	@echo "             write one HTML file with all of a study's figures and tables, to be mailed"
	@echo "make docs [STUDY=...]"
	@echo "             build the documentation site in build/docs, with the executed notebooks of a study"

	@echo "make demonstration"
	@echo "             choose the episodes that the notebooks show while there are no results; needs those of 'make figures'"
	@echo "make test    run the tests                            (ARGS=... goes to pytest)"
	@echo "make lint    check format, style, types of method and config, and what the rooms import"
	@echo "make fuzz    malformed input of every kind, new on each call   (ARGS=... goes to pytest)"
	@echo "make test-browser"
	@echo "             drive the widgets in JupyterLab, Notebook and Voila; needs Chromium   (ARGS=... goes to pytest)"
	@echo "make lab     open the notebooks in JupyterLab         (ARGS=... goes to JupyterLab)"
	@echo "make serve [STUDY=...]"
	@echo "             serve the widgets without the code, for colleagues to look at   (ARGS=... goes to Voila)"
	@echo "make bench   time the library against a direct implementation   (ARGS='--only test training')"
	@echo "make clean   delete what runs have made, except data, and tables and figures kept in git"
	@echo
	@echo "The first of them installs everything into $(VENV), which takes some minutes. PYTHON=python3.12 chooses"
	@echo "the Python to install with."

OPTIONS = $(if $(CORES),--cores $(CORES)) $(if $(DEVICE),--device $(DEVICE)) $(if $(WORKERS),--workers $(WORKERS)) \
  $(if $(PROCESSES),--processes $(PROCESSES)) $(if $(PROFILE),--profile $(PROFILE))

# `exec` and the parent's number: when make is killed, even outright, what it started ends too.
figures: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(OPTIONS) "$(STUDY)"

plan: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(OPTIONS) --dry-run "$(STUDY)"

watch: $(STAMP)
	@exec $(RUN) -m tcnaps.training.watching "$(STUDY)" $(ARGS)

differences: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(OPTIONS) "$(STUDY)" -- differences

rivals: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(OPTIONS) "$(STUDY)" -- rivals balance log_determinant scale_in_training

active: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(OPTIONS) "$(STUDY)" -- active_learning continual_learning

report: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.report "$(STUDY)"

docs: $(VENV)/.docs
	@exec $(RUN) docs/build.py "$(STUDY)"

$(VENV)/.docs: $(STAMP)
	@$(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[docs]'
	@touch $@

demonstration: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.demonstration "$(STUDY)"

lint: $(STAMP)
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m nbstripout --verify notebooks/*.ipynb

# Two processes, with one thread each (tests/conftest.py): each of them loads PyTorch.
test: $(STAMP)
	@exec $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

fuzz: $(STAMP)
	@exec $(RUN) -m pytest -n 2 -m fuzz --hypothesis-profile fuzz $(ARGS)

test-browser: $(STAMP)
	@exec $(RUN) -m pytest tests/suite/browser $(ARGS)

lab: $(STAMP)
	@exec $(RUN) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(ARGS)

serve: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.serving "$(STUDY)" $(ARGS)

bench: $(STAMP)
	@exec $(RUN) benchmarks/run.py $(ARGS)

clean:
	rm -rf .snakemake .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis build tcnaps.egg-info
	find results -path results/demonstration -prune -o \( -name checkpoints -o -name rows -o -name notebooks -o -name served \
	  -o -name meta-training -o -name watch -o -name .begun -o -name report.html -o -name .ready -o -name .lock \) -prune -exec rm -rf {} +
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
	if [ -d figures ]; then find figures -name '*.pdf' -type f -exec rm -f {} +; fi

# The stamp holds the folder that was installed from: after a move, install again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): force
endif

WHOLE_PYTHON = -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
MEGABYTES = awk '/^ *Downloading .* [MG]B\)/ { sub(/^ */, "  "); print; fflush() } \
                 /^Installing collected/ { print "  Unpacking"; fflush() }'

$(STAMP): pyproject.toml constraints.txt
	@rm -f $(STAMP) $(STAMP).new
	@$(RUN) $(WHOLE_PYTHON) || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "tcnaps needs Python 3.11 or newer, and '$(PYTHON)' is `$(PYTHON) --version 2>/dev/null || echo missing`." >&2; \
	    echo "Install a newer one and name it, for instance: make $(or $(MAKECMDGOALS),figures) PYTHON=python3.12" >&2; \
	    exit 1; }; \
	  echo "Creating $(VENV) with `$(PYTHON) --version`"; \
	  $(PYTHON) -m venv --clear $(VENV) && $(RUN) $(WHOLE_PYTHON) || { \
	    rm -rf $(VENV); \
	    echo "'$(PYTHON)' cannot make a virtual environment with pip in it. On Debian and Ubuntu install python3-venv" >&2; \
	    echo "(apt-get install python3-venv), or name another Python: make $(or $(MAKECMDGOALS),figures) PYTHON=..." >&2; \
	    exit 1; }; }
	@echo "Installing into $(VENV): some minutes and about 7 GB (all messages: $(VENV)/install.log)"
	@{ $(RUN) -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[suite,networks,rivals,cluster,watch,test]' 2>&1 \
	  && echo "$(CURDIR)" > $(STAMP).new; } | tee $(VENV)/install.log | $(MEGABYTES)
	@test -e $(STAMP).new || { \
	  tail -n 20 $(VENV)/install.log >&2; \
	  echo "The installation failed: the reason stands above. Once it is gone, the same command tries again." >&2; \
	  exit 1; }
	@mv $(STAMP).new $(STAMP)
