"""The README's moving picture: the stepper on a recorded episode, from step 0 until no label changes.

Recorded anew, where Chromium is installed, by

    TCNAPS_SCREENSHOTS=docs/images make test-browser ARGS="-k moving_picture"
"""

import io
import shutil

import numpy as np
from PIL import Image
from playwright.sync_api import expect
from servers import PATIENCE, REPOSITORY

from tcnaps.config import load_study
from tcnaps_suite.widgets import stepper_data
from tcnaps_suite.widgets.stepper_data import features_of

RECORDED = "results/demonstration"
EPISODE = ("Transductive", "5-way-1-shot", "signs", 0)  # refinement helps, and ends by itself
GLANCE, LOOK = 1300, 2600  # milliseconds that a frame is shown
MOST_BYTES = 1_000_000


def test_the_moving_picture_shows_the_stepper_until_no_label_changes(lab, project, pictures, monkeypatch):
    monkeypatch.chdir(project)
    shutil.copytree(REPOSITORY / RECORDED, RECORDED, dirs_exist_ok=True)
    features = features_of(load_study(f"{RECORDED}/study.yaml"), *EPISODE)
    found = stepper_data.run(features)
    places = dict(zip(("variant", "evaluation", "dataset", "episode"), EPISODE))
    page = lab.open("12-stepper", width=1400, height=1200, study_file=f"{RECORDED}/study.yaml", **places)
    view = page.locator(".tcnaps-stepper")
    plane, status = view.locator(".tcnaps-plane-picture"), view.locator(".tcnaps-status")
    dot = plane.locator(".xdot").nth(len(features.support_labels) + turned_right(found))
    view.evaluate("view => view.scrollIntoView()")
    frames, last = [], stepper_data.convergence(found)
    for step in range(last + 1):
        if step:
            view.locator(".tcnaps-forward").click()
        expect(status).to_have_text(stepper_data.status(found, step), timeout=PATIENCE)
        page.mouse.move(0, 0)
        frames.append((taken(page, view), GLANCE))
        if step in (0, last):
            dot.hover(force=True)  # others may lie over it
            expect(plane.locator(".xcard")).to_be_visible()
            frames.append((taken(page, view), LOOK))
        if step == 0:
            dot.click(force=True)
            expect(view.locator(".xmarked")).to_be_visible()
    (first, *rest), durations = zip(*frames)
    file = pictures / "stepper.webp"
    first.save(file, save_all=True, append_images=rest, duration=list(durations), loop=0, lossless=True, method=6)
    with Image.open(file) as moving:
        assert moving.n_frames == last + 3 and file.stat().st_size < MOST_BYTES


def turned_right(found):
    """The query that stands most alone among those that refinement puts right."""
    rows, steps = found.rows, len(found.steps) - 1
    queries = found.view.points[~found.view.is_support]
    apart = np.linalg.norm(queries[:, None] - found.view.points, axis=2)
    alone = np.sort(apart, axis=1)[:, 1]
    right = (rows["prediction_0"] != rows["label"]) & (rows[f"prediction_{steps}"] == rows["label"])
    return int(np.where(right, alone, -1).argmax())


def taken(page, view):
    """A picture of the stepper from its steps' buttons to its legend, once its own pictures are there."""
    page.evaluate("Promise.all([...document.querySelectorAll('.tcnaps-stepper img')].map(image => image.decode()))")
    page.wait_for_timeout(300)  # milliseconds
    side, first, last = (at.bounding_box() for at in (view, *map(view.locator, (".tcnaps-first", ".tcnaps-legend"))))
    high = last["y"] + last["height"] - first["y"]
    clip = {"x": side["x"], "y": first["y"] - 4, "width": side["width"], "height": high + 8}
    return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
