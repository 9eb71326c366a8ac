"""The page for labelling in a real browser: corrected by mouse and by keys, labelled again, exported."""

import json
import re

import pandas as pd
import pytest
from playwright.sync_api import expect
from servers import PATIENCE

from tcnaps_suite.experiments.networks import PACKAGED


@pytest.mark.parametrize("site", ["label", "lab"])
def test_images_are_corrected_labelled_again_and_exported(site, trees, request):
    (trees / "corrections.csv").unlink(missing_ok=True)
    opened = request.getfixturevalue(site)
    parameters = {"folder": str(trees), "backbone": PACKAGED} if site == "lab" else {}
    page = opened.open("24-label-my-images", **parameters)
    view = page.locator(".tcnaps-labels")
    pile, figures = view.locator(".tcnaps-pile select"), view.locator("figure")
    expect(view.locator(".tcnaps-status")).to_contain_text("0 corrections", timeout=PATIENCE)
    assert view.locator("figure img").first.evaluate("image => image.complete && image.naturalWidth > 0")
    pile.select_option(label="ash (9)")
    expect(figures).to_have_count(9)
    opened.screenshot(page, f"labels-{site}")
    first, second = (figures.nth(number).get_attribute("title").partition(":")[0] for number in (3, 4))

    figures.nth(3).click()
    view.get_by_role("button", name=re.compile("beech$")).click()
    expect(figures.nth(3).locator("b")).to_have_text("→ beech")
    expect(figures.nth(4)).to_have_attribute("aria-selected", "true")
    figures.nth(3).click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    expect(figures.nth(4).locator("b")).to_have_text("→ none of these")
    page.keyboard.press("u")
    expect(figures.nth(4).locator("b")).to_have_text("")
    page.keyboard.press("n")
    expect(figures.nth(4).locator("b")).to_have_text("→ none of these")
    kept = pd.read_csv(trees / "corrections.csv")
    assert dict(zip(kept["file"], kept["label"])) == {first: "beech", second: "none of these"}

    view.locator(".tcnaps-again").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("Labelled again", timeout=PATIENCE)
    expect(figures).not_to_have_count(9)
    pile.select_option(index=1)
    expect(figures.filter(has_text="corrected")).to_have_attribute("title", re.compile(f"^{first}"))
    opened.screenshot(page, f"labels-{site}-corrected")

    view.locator(".tcnaps-table").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("labels.csv")
    table = pd.read_csv(trees / "labels.csv", keep_default_na=False).set_index("file")
    assert table.loc[[first, second], "label"].tolist() == ["beech", ""]
    view.locator(".tcnaps-tasks").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("label-studio.json")
    tasks = json.loads((trees / "label-studio.json").read_text())
    assert sum(bool(task["annotations"]) for task in tasks) == 11
    assert not page.console_errors and page.locator(".tcnaps-notice:visible").count() == 0


def test_the_page_fits_a_telephone_and_asks_for_its_token(label):
    page = label.open(width=390, height=800)
    expect(page.locator(".tcnaps-labels .tcnaps-status")).to_contain_text("corrections", timeout=PATIENCE)
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= 390
    label.screenshot(page, "labels-telephone")
    refused = label.new_page()
    assert "tcnaps-labels" not in (refused.goto(label.server.url) and refused.content())
