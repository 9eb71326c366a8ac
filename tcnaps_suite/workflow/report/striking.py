"""The episodes in which refinement gained and lost most, with their images: for a report."""

from io import BytesIO

import pandas as pd
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps.figures.images import episode_images
from tcnaps.figures.style import TEXT_WIDTH, style
from tcnaps_suite.widgets import explorer_data
from tcnaps_suite.widgets.episode_table import at_step, class_names, replay, rows_of_episode, shortened, shots_in_words

BETTER, THAN = "Transductive", "FEOT"  # the same networks, with and without refinement
ENDS = {"Largest gains": "Largest gain first", "Largest losses": "Largest loss first"}


def striking_episodes(study: Study, number: int = 5) -> tuple[str, dict[str, tuple[pd.DataFrame, bytes | str]]]:
    """What refinement gains in the study's first evaluation of both variants.

    Args:
        number: episodes listed at each end.

    Returns:
        A sentence about all episodes (or about what is missing), and for each end a table and the first episode as a
        PNG, or why it can't be shown.
    """
    try:
        evaluation = explorer_data.evaluations_of(study, (BETTER, THAN))[0]
        rows = load_rows(study, evaluation, needed_trainings((BETTER, THAN)), [0])
    except UserError as error:
        return str(error), {}
    table, ends = explorer_data.episodes(rows, BETTER, THAN, study.refinement.limits), {}
    for end, sort in ENDS.items():
        listed = explorer_data.chosen(table, sort=sort).head(number)
        shown = listed[["dataset", "episode", "way"]].assign(shots=listed["shots"].map(shots_in_words))
        shown[[THAN, BETTER]] = 100 * listed[["accuracy_than", "accuracy"]]
        shown = shown.assign(gain=listed["gain"], **{"stops at step": listed["step"]})
        ends[end] = shown, _picture(study, rows, listed.iloc[0])
    return f"Evaluation {evaluation}. {explorer_data.in_words(table, BETTER, THAN)}", ends


def _picture(study: Study, rows: pd.DataFrame, episode: pd.Series) -> bytes | str:
    """An episode's images with the labels of step 0, and with those of the step at which refinement stops."""
    own = rows_of_episode(rows, BETTER, episode["dataset"], int(episode["episode"]))
    try:
        images = replay(study, own)
    except UserError as error:
        return str(error)
    support = {
        shortened(name): images.support_images[images.support_labels == k] for k, name in enumerate(class_names(own))
    }
    content = BytesIO()
    with style():
        figure = Figure((TEXT_WIDTH, 0.8 + 0.72 * len(support)))
        for ax, step in zip(figure.subplots(2), (0, episode["step"]), strict=True):
            found = at_step(own, int(step))
            labels = (found[column].to_numpy() for column in ("prediction", "label"))
            episode_images(ax, support, images.query_images, *labels)
            ax.set_title(
                f"{episode['dataset']}, episode {episode['episode']}: labels after step {step}", loc="left", pad=14
            )
        figure.savefig(content, format="png")
    return content.getvalue()
