# `make` alone lists what there is. Needs make and Python 3.11 or newer; everything else is installed into .venv.

PYTHON ?= python3
STUDY ?= configs/miniature.yaml

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# With either of these set, Jupyter may prefer another installation's kernel to the one in .venv.
unexport JUPYTER_PATH JUPYTER_PREFER_ENV_PATH

# Let glibc keep freed memory for the next batch, instead of returning it to the system after each.
export MALLOC_TRIM_THRESHOLD_ ?= 1073741824
export MALLOC_MMAP_THRESHOLD_ ?= 1073741824
export MALLOC_TOP_PAD_ ?= 67108864

ifdef WORKERS
$(info WORKERS has gone: each job reads its images itself, which takes less time.)
endif

.PHONY: help figures plan watch differences rivals active archive reference demonstration lint test test-browser fuzz report docs \
  lab label serve bench clean force

define HELP
make figures [STUDY=configs/miniature.yaml] [CORES=n] [DEVICE=cuda] [PROCESSES=n] [PROFILE=slurm]
             train, evaluate and draw every figure and table of a study; only what is stale
             CORES: processor cores that the jobs share; 0, the default: all
             PROCESSES: processes that share each training and each evaluation; GPUs one each
             PROFILE: run the jobs on a cluster, as profiles/<name>/ says (docs/scaling.md)
make plan    list the jobs that 'make figures' would run, why, and how long they took last time; list the data that is
             there or missing
make watch   see how trainings go, in TensorBoard   (ARGS=... goes to TensorBoard)
make differences
             what each difference between the paper and its released code costs: 14 short trainings, an hour or more
make rivals  other classifiers and heads on the study's features, also where queries are out of balance: an hour or more
make active  active and continual learning with the study's models: a quarter of an hour
make report  write one HTML file with all of a study's figures and tables, to be mailed
make archive write one zip with a study's weights, card, settings, tables, report and checksums, for tcnaps.load
make docs    build the documentation site in build/docs, with the executed notebooks of a study
make reference
             keep the tables and figures of a finished run in results/reference/ and figures/reference/, for git
make demonstration
             choose the episodes that the notebooks show while there are no results; needs those of 'make figures'
make serve   serve the widgets without the code, for colleagues to look at   (ARGS=... goes to Voila)
             All of these take STUDY=...

make label FOLDER=trees [BACKBONE=efficientnet:lite0]
             label the images of a folder from a few examples, and serve a page to look at the labels and to correct
             them (docs/my-images.md)   (ARGS=... goes to Voila)
make lab     open the notebooks in JupyterLab         (ARGS=... goes to JupyterLab)
make test    run the tests                            (ARGS=... goes to pytest)
make lint    check format, style, types of config, and what the rooms import
make fuzz    malformed input of every kind, new on each call   (ARGS=... goes to pytest)
make test-browser
             drive the widgets in JupyterLab, Notebook and Voila; needs Chromium   (ARGS=... goes to pytest)
make bench   time the library against a direct implementation   (ARGS='--only test training')
make clean   delete what runs have made, except data and what is kept in git

The first command installs everything into $(VENV), which takes some minutes. PYTHON=python3.12 chooses
the Python to install with.
endef
export HELP

help:
	@echo "$$HELP"

# `exec` and the parent's number: when make is killed, even outright, what it started ends too.
STUDY_RUN = exec $(RUN) -m tcnaps_suite.workflow.batch study --parent $$PPID $(if $(CORES),--cores $(CORES)) \
  $(if $(DEVICE),--device $(DEVICE)) $(if $(PROCESSES),--processes $(PROCESSES)) $(if $(PROFILE),--profile $(PROFILE)) "$(STUDY)"

figures: $(STAMP)
	@$(STUDY_RUN)

plan: $(STAMP)
	@$(STUDY_RUN) --dry-run

differences rivals active: $(STAMP)
	@$(STUDY_RUN) -- all_$@

watch: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.watch --logdir results --host localhost $(ARGS)

report archive reference: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.command $@ "$(STUDY)"

docs: $(VENV)/.docs
	@exec $(RUN) docs/build.py "$(STUDY)"

# What only some targets need: docs, test.
$(VENV)/.%: $(STAMP)
	@echo "Installing what 'make $(firstword $(MAKECMDGOALS))' needs besides"
	@$(RUN) -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[$*]'
	@touch $@

demonstration: $(STAMP)
	@exec $(RUN) docs/demonstration.py "$(STUDY)"

lint: $(VENV)/.test
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m nbstripout --verify notebooks/*.ipynb

# Two processes, with one thread each (tests/conftest.py): each of them loads PyTorch.
test: $(VENV)/.test
	@exec $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

fuzz: $(VENV)/.test
	@exec $(RUN) -m pytest -n 2 -m fuzz --hypothesis-profile fuzz $(ARGS)

test-browser: $(VENV)/.test
	@exec $(RUN) -m pytest tests/suite/browser $(ARGS)

lab: $(STAMP)
	@JUPYTER_CONFIG_PATH="$(CURDIR)/tcnaps_suite/workflow/lab$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
	  exec $(RUN) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks/START.md $(ARGS)

label: $(STAMP)
	@test -n "$(FOLDER)" || { echo "Name the folder of images: make label FOLDER=trees" >&2; exit 1; }
	@$(RUN) -m tcnaps label "$(FOLDER)" $(if $(BACKBONE),--backbone "$(BACKBONE)")
	@exec $(RUN) -m tcnaps_suite.workflow.serving "$(STUDY)" --label "$(FOLDER)" $(if $(BACKBONE),--backbone "$(BACKBONE)") $(ARGS)

serve: $(STAMP)
	@exec $(RUN) -m tcnaps_suite.workflow.serving "$(STUDY)" $(ARGS)

bench: $(STAMP)
	@exec $(RUN) benchmarks/run.py $(ARGS)

clean:
	rm -rf .snakemake .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis build tcnaps.egg-info
	[ ! -d results ] || find results -mindepth 1 -maxdepth 1 ! -name published ! -name reference ! -name demonstration -exec rm -rf {} +
	[ ! -d figures ] || find figures -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

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
	@{ $(RUN) -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[suite,images,networks,records,rivals,cluster,watch]' 2>&1 \
	  && echo "$(CURDIR)" > $(STAMP).new; } | tee $(VENV)/install.log | $(MEGABYTES)
	@test -e $(STAMP).new || { \
	  tail -n 20 $(VENV)/install.log >&2; \
	  echo "The installation failed for the reason above. Remove its cause, then run the same command again." >&2; \
	  exit 1; }
	@mv $(STAMP).new $(STAMP)
