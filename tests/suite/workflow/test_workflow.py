"""The Snakefile with stand-ins for the notebooks: the same files, no training. One run serves all tests."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import papermill
import psutil
import pytest
import yaml
from notebook_files import cell, write_notebook

REPOSITORY = Path(__file__).parents[3]
pytestmark = pytest.mark.slow  # some minutes in all

# What each notebook writes: figures as PNG and PDF, and files of results.
WRITES = {
    "00-data": ("data", "data.csv"),
    "01-soft-k-means": (
        "soft-k-means-toy soft-k-means-episode episode-images softmax-confidence softmax-scale",
        "softmax-scale.csv",
    ),
    "02-pretrain": ("pretraining", "checkpoints/backbone.safetensors pretraining.csv"),
    "03-meta-train": ("meta-training/{training}", "checkpoints/{training}.safetensors meta-training/{training}.csv"),
    "04-evaluate": ("", "rows/{training}.json"),
    "05-accuracy": ("accuracy gain", "accuracy.csv fixed-way-and-shot.csv gain-at-1-shot.csv headline.json"),
    "06-ablations": ("ablations", "ablations.csv"),
    "07-class-recall": ("class-recall class-recall-gain", "class-recall.csv"),
    "08-refinement-steps": ("refinement-steps accuracy-by-step", "refinement-steps.csv refinement-table.csv"),
    "09-number-of-queries": ("number-of-queries", "number-of-queries.csv"),
    "10-ways-and-shots": ("ways-and-shots", "ways.csv shots.csv"),
    "11-differences": ("differences", "differences.csv"),
    "17-claims": ("claims", "claims.csv claims.md"),
    "18-before-and-after": ("gain-of-meta-training reliability", "gain-of-meta-training.csv reliability.csv"),
    "19-rivals": ("rivals-1-shot rivals-5-shot", "rivals.csv rivals-episodes.csv"),
    "20-balance": ("balance", "balance.csv balance-episodes.csv"),
    "21-active-learning": ("active-learning", "active-learning.csv active-learning-episodes.csv"),
    "22-continual-learning": ("continual-learning", "continual-learning.csv continual-learning-episodes.csv"),
    "23-log-determinant": ("log-determinant-1-shot log-determinant-5-shot", "log-determinant.csv scales.csv"),
    "25-scale-in-training": ("scale-in-training", "scale-in-training.csv"),
    "26-heads": ("heads heads-and-scales", "heads.csv learned-numbers.csv"),
}
OF_SOME = {"06-ablations", "09-number-of-queries", "26-heads"}  # studies, of which the one here is none
ON_REQUEST = {"11-differences", *(name for name in WRITES if name > "19")} - OF_SOME
RULES_ON_REQUEST = [name[3:].replace("-", "_") for name in sorted(ON_REQUEST)]


def files_of(name):
    figures, tables = (names.split() for names in WRITES[name])
    drawn = [f"{{figures}}/{figure}.{end}" for figure in figures for end in ("png", "pdf")]
    return [*drawn, *(f"{{results}}/{table}" for table in tables)]


CODE = """
import json
import time
from pathlib import Path
from tcnaps.figures import style
from tcnaps.config import load_study

name, files = {facts}
root, study = Path.cwd().parent, load_study(study_file, replicate)
with open(root / "executed.txt", "a") as log:  # the name of the Snakefile's rule
    rule = f"{{name[3:]}} {{training}}".strip() + (f" replicate {{replicate}}" if replicate else "")
    log.write(rule.replace("-", "_").replace(" ", "_") + chr(10))
while (root / "wait").exists():
    time.sleep(0.1)
if name == "07-class-recall":
    assert not (root / "fail").exists(), "as the test wants it"
for file in files:
    path = Path(file.format(figures=study.figures_folder, results=study.results_folder, training=training))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({{"sentence": "+3.1 ± 0.8 points"}}))
    if name == "04-evaluate":
        from pandas import DataFrame
        from tcnaps.evaluation.result_files import write_manifest, write_rows
        rows = path.with_suffix("") / "all.parquet"
        write_rows(rows, DataFrame({{"label": [1]}}), "key")
        write_manifest(study, training, [rows])
"""

DEFAULTS = {"study_file": "configs/miniature.yaml", "training": "", "evaluation": "", "start": "", "evaluations": []}
DEFAULTS |= {"device": "cpu", "workers": 0, "processes": 1, "replicate": 0}
PARAMETERS = "\n".join(f"{name} = {value!r}" for name, value in DEFAULTS.items())

STUDY = {
    "name": "small",
    "datasets": {"glyphs": {"source": "miniature", "domain": "in"}, "digits": {"source": "miniature", "domain": "out"}},
    "pretraining": {"datasets": ["glyphs"]},
    "meta_training": {"datasets": ["glyphs"], "validation_datasets": ["glyphs"], "protocol": {"kind": "variable"}},
    "trainings": ["support", "support_and_query", "support_and_query_refined"],
    "evaluations": {
        "variable": {
            "protocol": {"kind": "variable"},
            "datasets": ["digits"],
            "trainings": ["support", "support_and_query", "support_and_query_refined"],
        },
        "start": {
            "protocol": {"kind": "variable"},
            "datasets": ["digits"],
            "trainings": ["support", "support_and_query"],
            "before_training": True,
        },
        "5-way": {
            "protocol": {"kind": "fixed", "way": 5, "shot": 1},
            "datasets": ["glyphs"],
            "trainings": ["support", "support_and_query"],
        },
    },
}
TRAIN, TRAIN_PLUS = {"meta_train_support", "meta_train_support_and_query"}, {"meta_train_support_and_query_refined"}
EVALUATE, EVALUATE_PLUS = {"evaluate_support", "evaluate_support_and_query"}, {"evaluate_support_and_query_refined"}
FIGURES = {"accuracy", "class_recall", "refinement_steps", "ways_and_shots", "claims", "before_and_after"}
TOY = {"soft_k_means"}
DATA = {"data"}
NOTEBOOKS = DATA | {"pretrain"} | TRAIN | TRAIN_PLUS | EVALUATE | EVALUATE_PLUS | FIGURES | TOY

# Stands for the preparation of a study's datasets: `digest` is what it finds in them.
PREPARE = """
from pathlib import Path
import sys
import yaml

def main(arguments):
    if Path("missing").exists():
        print("Dataset 'textures': there is no folder data/textures.", file=sys.stderr)
        return 1
    if "--ready" in arguments:
        folder = Path(arguments[arguments.index("--ready") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        digest = Path("digest").read_text() if Path("digest").exists() else "0"
        for name in yaml.safe_load(Path(arguments[0]).read_text())["datasets"]:
            (folder / name).write_text(digest)
    print("listed" if "--list" in arguments else "prepared")
    return 0

def sizes(study):
    return {}
"""


# Stands for papermill, whose kernels take longer to start than the stand-ins for the notebooks to run.
PAPERMILL = """
import json
import os

class PapermillExecutionError(Exception):
    pass

def execute_notebook(notebook, output, parameters, cwd, **options):
    text, names = notebook.read_text(), {}
    output.write_text(text)
    os.chdir(cwd)
    for cell in json.loads(text)["cells"]:
        exec("".join(cell["source"]), names)
        names |= parameters if "parameters" in cell["metadata"].get("tags", ()) else {}
"""


def make_project(root):
    """A checkout with stand-ins: notebooks that only write their files, a library without torch."""
    (root / "configs").mkdir(parents=True)
    shutil.copy(REPOSITORY / "Snakefile", root)
    shutil.copy(REPOSITORY / "configs" / "miniature.yaml", root / "configs")
    without_caches = shutil.ignore_patterns("__pycache__")
    for room in ("tcnaps/config", "tcnaps_suite/workflow"):
        shutil.copytree(REPOSITORY / room, root / room, ignore=without_caches)
    shutil.copy(REPOSITORY / "tcnaps_suite" / "__init__.py", root / "tcnaps_suite")
    for name in ("__init__", "evaluation/result_files", "method/head", "method/variants"):
        (root / "tcnaps" / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "tcnaps" / f"{name}.py", root / "tcnaps" / f"{name}.py")
    stand_ins = {
        "../tcnaps_suite/workflow/prepare": PREPARE,
        "figures/style": "colour = 'red'",
        "method/model": "layers = 18",
        "training/pretraining": "epochs = 125",
        "training/meta_training": "from tcnaps.method.model import layers",
        "training/released": "print('imported')",
        "evaluation/evaluate": "from tcnaps.method.model import layers",
    }
    for name, code in stand_ins.items():
        file = root / "tcnaps" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
    for name in WRITES:
        imported = [cell("from tcnaps.method.model import layers")] if name in ("03-meta-train", "04-evaluate") else []
        code = cell(CODE.format(facts=(name, files_of(name))))
        write_notebook(root / "notebooks" / f"{name}.ipynb", cell(PARAMETERS, "parameters"), *imported, code)
    write_study(root, STUDY)
    (root / "without_kernels" / "papermill").mkdir(parents=True)
    (root / "without_kernels" / "papermill" / "__init__.py").write_text(PAPERMILL)
    return root


def write_study(root, content, name="small"):
    (root / "configs" / f"{name}.yaml").write_text(yaml.safe_dump(content))


def start(root, *options, study="configs/small.yaml", rules=(), kernels=False):
    path = [root] if kernels else [root / "without_kernels", root]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-m", "tcnaps_suite.workflow.batch", "study", "--cores", "2", *options, study]
    command += ["--", *rules] if rules else []
    return subprocess.Popen(
        command, cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run(root, *options, **study):
    with start(root, *options, **study) as process:
        return process.stdout.read(), process.wait()


def stale(root, **study):
    """Names of the rules that a run would execute."""
    printed, status = run(root, "--dry-run", **study)
    assert status == 0, printed
    rules = re.findall(r"^(\w+) +\d+ +[\d.]+ GB ", printed, flags=re.MULTILINE)
    assert rules or "Nothing to be done" in printed, printed
    return set(rules)


def executed(root):
    return (root / "executed.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A run that was killed half-way, one in which a cell failed, and one that went through."""
    root, finished = make_project(tmp_path_factory.mktemp("project") / "root"), set()
    with start(root, kernels=True) as process:
        for line in process.stdout:
            finished |= set(re.findall(r"Finished (\w+) in", line))
            if len(finished) >= 4:
                break
        (root / "wait").touch()
        before = len(executed(root))
        while len(executed(root)) == before:  # the next notebook waits
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("ipykernel_launcher" in child.cmdline() for child in family)
        process.kill()
        alive = psutil.wait_procs(family, timeout=5)[1]
        for child in alive:
            child.kill()
        finished |= set(re.findall(r"Finished (\w+) in", process.stdout.read()))
    (root / "wait").unlink()
    before = executed(root)
    (root / "fail").touch()
    failed = run(root, kernels=True)
    (root / "fail").unlink()
    return SimpleNamespace(
        root=root,
        finished_before=finished,  # rules that Snakemake had reported when it was killed
        executed_before=before,
        left_running=[child.pid for child in alive],
        failed=failed,
        stale_after_failure=stale(root),
        whole=run(root, kernels=True),
    )


@pytest.fixture
def clone(tmp_path):
    return make_project(tmp_path / "clone")


@pytest.fixture
def project(story, tmp_path):
    """A copy of the finished project."""
    assert story.whole[1] == 0, story.whole[0]
    return shutil.copytree(story.root, tmp_path / "project")


def test_a_killed_run_leaves_nothing_running_and_resumes_without_redoing_anything(story):
    assert "pretrain" in story.finished_before and story.left_running == []
    assert story.whole[1] == 0
    done = executed(story.root)
    assert len(story.executed_before) < len(set(done)) and set(done) == NOTEBOOKS
    assert all(done.count(rule) == 1 for rule in story.finished_before), done


def test_a_failing_cell_stops_nothing_that_does_not_need_it(story):
    printed, status = story.failed
    assert status == 1 and "AssertionError: as the test wants it" in printed
    assert "results/small/notebooks/07-class-recall.ipynb" in printed
    assert story.stale_after_failure == {"class_recall"}


def test_everything_declared_exists(story):
    for name in WRITES.keys() - ON_REQUEST - OF_SOME:
        for training in STUDY["trainings"] if name.startswith(("03", "04")) else [""]:
            files = [*files_of(name), f"{{results}}/notebooks/{name}{'-' * bool(training)}{training}.ipynb"]
            places = {"figures": story.root / "figures/small", "results": story.root / "results/small"}
            assert all(Path(file.format(**places, training=training)).exists() for file in files)


def test_a_second_run_does_nothing_with_any_number_of_processes_and_says_where_things_lie(project):
    before = executed(project)
    printed, status = run(project, "--workers", "3", "--processes", "2")
    assert status == 0 and "Nothing to be done" in printed
    assert "figures/small/" in printed and "+3.1 ± 0.8 points" in printed
    assert executed(project) == before


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        (None, {"data_folder": "elsewhere"}, set()),
        ("refinement", {"minimum_steps": 1}, TRAIN_PLUS | EVALUATE_PLUS | FIGURES | TOY),
        ("meta_training", {"learning_rate": 1e-3}, NOTEBOOKS - {"pretrain"} - DATA),
        ("refinement", {"recorded_steps": 12}, EVALUATE | EVALUATE_PLUS | FIGURES | TOY),  # and no training
        (None, {"image_size": 32}, NOTEBOOKS),
    ],
)
def test_a_changed_value_makes_stale_what_reads_it(project, section, values, expected):
    content = STUDY | (values if section is None else {section: STUDY.get(section, {}) | values})
    write_study(project, content, "changed")
    assert stale(project, study="configs/changed.yaml") == expected


def snakemake(root, *options):
    """Lists what Snakemake alone would do."""
    command = [sys.executable, "-m", "snakemake", "-n", "-p", "--config", "study=configs/small.yaml", *options]
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(
        command, cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_notebooks_get_device_and_processes(clone):
    printed = snakemake(clone, "device=cuda", "workers=2", "processes=3").stdout
    commands = [line for line in printed.splitlines() if "tcnaps_suite.workflow.batch notebook" in line]
    told = [line for line in commands if "-p device cuda -p workers 2 -p processes 3" in line]
    with_device = {line.split("results/small/notebooks/")[1][:2] for line in told}
    assert with_device == {"02", "03", "04"} and len(commands) == len(NOTEBOOKS)
    assert [line for line in commands if "01-soft-k-means" in line and "-p evaluation 5-way" in line]


def test_notebooks_know_the_parameters_that_they_are_given(clone):
    """The notebooks themselves, not their stand-ins, also those that run only when they are asked for."""
    names = ["support_and_query", "support_and_query_learned_scale"]
    evaluations = {"5-way": STUDY["evaluations"]["5-way"] | {"trainings": names}}
    write_study(clone, STUDY | {"trainings": names, "evaluations": evaluations}, "heads")
    told = {}
    for study, rules in {"small": ["all", *RULES_ON_REQUEST], "miniature": ["all"], "heads": ["all"]}.items():
        printed = snakemake(clone, f"study=configs/{study}.yaml", "processes=2", "--", *rules).stdout
        for notebook, given in re.findall(
            r"tcnaps_suite.workflow.batch notebook.* (notebooks/\S+) \S+( -p .*)", printed
        ):
            told.setdefault(notebook, set()).update(re.findall(r" -p (\w+)", given))
    assert told.keys() == {f"notebooks/{name}.ipynb" for name in WRITES}
    unknown = {name: given - papermill.inspect_notebook(str(REPOSITORY / name)).keys() for name, given in told.items()}
    assert not any(unknown.values()), unknown


def test_changed_images_make_stale_what_is_made_of_them(project):
    before = executed(project)
    (project / "digest").write_text("1")
    printed, status = run(project)
    assert status == 0, printed
    assert set(executed(project)[len(before) :]) == NOTEBOOKS


def test_missing_data_stops_a_run_at_once(project):
    (project / "missing").touch()
    before = executed(project)
    printed, status = run(project)
    assert status == 1 and "Dataset 'textures': there is no folder" in printed
    assert executed(project) == before and "Nothing to be done" not in printed
    planned, status = run(project, "--dry-run")
    assert "Nothing to be done" in planned and "Dataset 'textures': there is no folder" in planned


def test_changed_code_makes_stale_what_runs_it(project):
    notebook = project / "notebooks" / "10-ways-and-shots.ipynb"
    notebook.write_text(notebook.read_text().replace("import json", "import json, math"))
    assert stale(project) == {"ways_and_shots"}
    style = project / "tcnaps" / "figures" / "style.py"
    style.write_text("colour = 'blue'")
    assert stale(project) == DATA | FIGURES | TOY  # and no training
    (project / "tcnaps" / "method" / "model.py").write_text("layers = 34")
    assert stale(project) == NOTEBOOKS - {"pretrain"}  # data for its figure's style, still


def test_another_wording_of_a_command_makes_nothing_stale(project):
    workflow = project / "Snakefile"
    workflow.write_text(workflow.read_text().replace("--quiet --parent $PPID", "--parent $PPID --quiet"))
    assert "--parent $PPID --quiet" in workflow.read_text() and stale(project) == set()


def test_damaged_rows_and_a_lost_table_are_made_again(project):
    rows = project / "results/small/rows/support/all.parquet"
    os.truncate(rows, 100)
    (project / "results/small/accuracy.csv").unlink()
    planned, _ = run(project, "--dry-run")
    assert f"{rows}" in planned and rows.with_suffix("").parent.with_suffix(".json").exists()
    before = executed(project)
    printed, status = run(project)
    assert status == 0, printed
    again = executed(project)[len(before) :]
    assert "evaluate_support" in again and "evaluate_support_and_query" not in again and rows.stat().st_size > 500
    assert stale(project) == set()


def test_figures_older_than_their_rows_are_named(project):
    def outdated():
        code = "import json; from tcnaps_suite.workflow.report.freshness import outdated; "
        code += "print(json.dumps(outdated(%r, %r)))"
        code %= ("configs/small.yaml", ["figures/small/ways-and-shots.png", *made])
        environment = os.environ | {"PYTHONPATH": str(project)}
        return json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=project, env=environment))

    made = ["figures/small/accuracy.png", "results/small/accuracy.csv", "figures/small/refinement-steps.png"]
    assert outdated() == {}
    (project / "results/small/rows/support.json").write_text(json.dumps({"support/all.parquet": "other rows"}))
    found = outdated()
    assert found.keys() == {"figures/small/ways-and-shots.png", *made[:2]}
    assert all("older than the rows" in why for why in found.values())
    made.append("figures/small/of-no-rule.png")  # then only the others can be told
    assert outdated() == found


def test_a_fresh_clone_makes_everything(project, clone):
    for file in [*project.glob("results/*/*.csv"), *project.glob("figures/**/*.png")]:  # what git keeps
        kept = clone / file.relative_to(project)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, kept)
    assert stale(clone) == NOTEBOOKS
    miniature = stale(clone, study="configs/miniature.yaml")
    last = "meta_train_support_and_query_log_determinant_refined"
    assert {"ablations", "number_of_queries", last, "evaluate_support"} <= miniature
    assert len(miniature) == 2 + 6 + 6 + 1 + 8  # data, backbone; trainings; evaluations; 01; 05 to 10, 17 and 18


def test_replicates_are_jobs_of_their_own_and_figures_wait_for_all(clone):
    write_study(clone, STUDY | {"replicates": 2})
    assert stale(clone) == NOTEBOOKS | {f"{rule}_replicate_1" for rule in NOTEBOOKS - FIGURES - TOY - DATA}
    write_study(clone, STUDY | {"replicates": [3, 7], "replicate_backbone": False})
    printed, status = run(clone)
    assert status == 0, printed
    done = executed(clone)
    assert done.count("pretrain") == 1 and "pretrain_replicate_1" not in done
    assert done.index("evaluate_support_and_query_replicate_1") < done.index("refinement_steps")
    assert (clone / "results/small/replicate-1/rows/support.json").is_file()
    write_study(clone, STUDY | {"replicates": [3, 8], "replicate_backbone": False})
    again = {f"{rule}_replicate_1" for rule in TRAIN | TRAIN_PLUS | EVALUATE | EVALUATE_PLUS}
    assert stale(clone) == FIGURES | again


def test_imported_weights_take_the_place_of_trained_ones(clone):
    write_study(clone, STUDY | {"imported": {"support_and_query": "released/best_transductive_cnaps.pt"}})
    assert stale(clone) == NOTEBOOKS - {"pretrain", "meta_train_support_and_query"} | {"import_checkpoints"}


def test_some_notebooks_run_when_they_are_asked_for(clone):
    printed, status = run(clone, "--dry-run", rules=RULES_ON_REQUEST)
    assert status == 0, printed
    assert all(re.search(rf"^{rule} +\d", printed, re.MULTILINE) for rule in RULES_ON_REQUEST)
    assert not re.search(r"^(accuracy|evaluate_support) ", printed, re.MULTILINE)


def test_heads_beside_the_paper_s_are_compared_where_they_are_trained(clone):
    names = ["support_and_query", "support_and_query_learned_scale"]
    evaluations = {"5-way": STUDY["evaluations"]["5-way"] | {"trainings": names}}
    write_study(clone, STUDY | {"trainings": names, "evaluations": evaluations}, "heads")
    rules = stale(clone, study="configs/heads.yaml")
    assert {"heads", "meta_train_support_and_query_learned_scale", "refinement_steps"} <= rules
    assert "heads" not in stale(clone)


def test_snakemake_alone_explains_a_wrong_study(clone):
    write_study(clone, STUDY | {"sed": 1})
    ended = snakemake(clone)
    assert ended.returncode == 1 and "Traceback" not in ended.stdout
    assert "sed: there is no such key; did you mean 'seed'?" in ended.stdout
