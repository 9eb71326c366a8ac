"""The page that `make lab` opens."""

import re
import shutil

from servers import REPOSITORY, TOKEN


def test_the_start_page_is_shown_as_text_its_links_lead_somewhere_and_nobody_asks_for_news(lab):
    links = re.findall(r"\]\((.*?)\)", (REPOSITORY / "notebooks" / "START.md").read_text())
    assert len(links) > 8 and all((REPOSITORY / "notebooks" / link).is_file() for link in links)
    shutil.copy(REPOSITORY / "notebooks" / "START.md", lab.project / "notebooks")
    page = lab.new_page()
    page.goto(lab.server.url + lab.route.format(path="notebooks/START.md", token=TOKEN))
    page.get_by_role("heading", name="Where to start").wait_for()
    page.wait_for_timeout(5000)
    assert page.get_by_role("link", name="12-stepper").is_visible()
    assert page.get_by_text("Jupyter news").count() == 0
