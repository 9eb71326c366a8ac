"""The README's moving picture: the stepper on a recorded episode, from step 0 until no label changes.

Recorded anew, with Chromium, by TCNAPS_SCREENSHOTS=docs/images make test-browser ARGS="-k moving_picture"
"""

import io
import re
import shutil

from PIL import Image
from playwright.sync_api import expect
from servers import PATIENCE, REPOSITORY

from tcnaps.config import load_study
from tcnaps_suite.experiments.study_episodes import features_of
from tcnaps_suite.widgets import stepper_data

RECORDED = "results/demonstration"
EPISODE = ("Transductive", "5-way-1-shot", "glyphs", 0)  # refinement helps, and ends by itself
SHOWN = 1500  # milliseconds that a frame is shown
MOST_BYTES = 1_000_000


def test_the_moving_picture_shows_the_stepper_until_no_label_changes(lab, project, pictures, monkeypatch):
    monkeypatch.chdir(project)
    shutil.copytree(REPOSITORY / RECORDED, RECORDED, dirs_exist_ok=True)
    trajectory = stepper_data.run(features_of(load_study(f"{RECORDED}/study.yaml"), *EPISODE))
    places = dict(zip(("variant", "evaluation", "dataset", "episode"), EPISODE))
    page = lab.open("12-stepper", width=1400, height=1200, study_file=f"{RECORDED}/study.yaml", **places)
    view = page.locator(".tcnaps-stepper")
    view.evaluate("view => view.scrollIntoView()")
    frames = []
    for step in range(trajectory.view.end + 1):
        if step:
            view.locator(".tcnaps-forward").click()
        status = stepper_data.status(trajectory, step)
        expect(view.locator(".tcnaps-status")).to_have_text(status, timeout=PATIENCE)
        picture = view.locator(".tcnaps-picture img").first  # drawn after the status
        expect(picture).to_have_attribute("alt", re.compile(re.escape(status)), timeout=PATIENCE)
        frames.append(taken(page, view))
    file = pictures / "stepper.webp"
    options = {"save_all": True, "append_images": frames[1:], "loop": 0, "lossless": True, "method": 6}
    frames[0].save(file, duration=SHOWN, **options)
    with Image.open(file) as moving:
        assert moving.n_frames == len(frames) and file.stat().st_size < MOST_BYTES


def taken(page, view):
    """A picture of the stepper from its steps' buttons to its legend, once its own picture is there."""
    page.evaluate("Promise.all([...document.querySelectorAll('.tcnaps-stepper img')].map(image => image.decode()))")
    page.wait_for_timeout(300)  # milliseconds
    places = view, view.locator(".tcnaps-first"), view.locator(".tcnaps-legend")
    side, first, last = (place.bounding_box() for place in places)
    high = last["y"] + last["height"] - first["y"]
    clip = {"x": side["x"], "y": first["y"] - 4, "width": side["width"], "height": high + 8}
    return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
