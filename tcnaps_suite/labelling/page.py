"""A page to work with: look at the labels, correct them by mouse or keys, label again, and take them elsewhere."""

import html
import tempfile
from functools import lru_cache, partial
from pathlib import Path

import anywidget
import pandas as pd
import traitlets
from ipywidgets import FileUpload

from tcnaps.config.storage import write_text
from tcnaps_suite.labelling import corrections
from tcnaps_suite.labelling.classify import Labels, accuracy, expected, label_images
from tcnaps_suite.labelling.contact_sheet import thumbnail
from tcnaps_suite.labelling.folder import NONE, OF_STUDY, PILES, ImageFolder
from tcnaps_suite.labelling.label import write_labels
from tcnaps_suite.widgets import widget_base as ui
from tcnaps_suite.widgets.episode_table import counted

SHOWN = 48  # pictures on one page
ORDERS = ("least certain first", "most certain first")
UNDO, NONE_KEY = "u", "n"
FOREIGN, EMPTY, NEXT = PILES
TASKS = "label-studio.json"
picture = lru_cache(4096)(thumbnail)


def keys_of(classes: list[str]) -> dict[str, str]:
    """Keys for the classes: digits for the first nine, and first letters that are no other's."""
    keys = {str(number): name for number, name in enumerate(classes[:9], start=1)}
    letters = [name[0].lower() for name in classes]
    first = zip(letters, classes)
    return keys | {key: name for key, name in first if letters.count(key) == 1 and key not in (*keys, UNDO, NONE_KEY)}


def piles_of(folder: ImageFolder, labels: Labels) -> dict[str, pd.DataFrame]:
    """Images of each class, those like none, those without a label, and those to label next.

    Each has the columns of `Labels.table` and `verdict`. A class's examples come first, with the `corrected` "example",
    then corrected images, then the least certain.
    """
    table = labels.table.assign(verdict=labels.verdicts)
    table = table.sort_values(["corrected", "probability"], ascending=[False, True], kind="stable")
    foreign, piles = table["none_of_these"] != "", {}
    for name in folder.classes:
        examples = labels.examples[labels.examples["label"] == name].assign(corrected="example", verdict="")
        piles[name] = pd.concat([examples, table[(table["label"] == name) & ~foreign]])
    piles |= {FOREIGN: table[foreign], EMPTY: table[(table["label"] == "") & ~foreign]}
    piles[NEXT] = table[table["label_next"] != ""].sort_values("label_next", key=lambda places: places.astype(int))
    return {name: pile for name, pile in piles.items() if len(pile)}


class Gallery(anywidget.AnyWidget):
    """Pictures, of which one is selected, by its file. A known key comes as a message, with the picture's `file`."""

    _esm, _css = (Path(__file__).with_name(f"gallery.{kind}") for kind in ("js", "css"))
    pictures = traitlets.List().tag(sync=True)  # of file, address, title, name, caption, verdict
    marks = traitlets.List().tag(sync=True)  # a text on each picture, or ""
    selected = traitlets.Unicode("").tag(sync=True)
    shortcuts = traitlets.List().tag(sync=True)


class LabelPage(ui.StudyWidget):
    """Looks through a folder's labels and corrects them. `corrections` are corrections.csv's: file → class or `NONE`.

    A new one shows nothing before `load`. Labels are left empty where the probability is below `abstain`.
    """

    kind = "labels"

    def __init__(self, folder: ImageFolder, abstain: float | int = 0):
        super().__init__()
        self.folder, self.abstain, self.corrections = folder, abstain, {}
        self.labels: Labels | None = None
        self._piles, self._files, self._number = {}, [], 0  # the images by pile; those on the page, and its number
        self._used, self._before = {}, []  # corrections at the last labelling; earlier ones, to be restored
        self._keys = keys_of(folder.classes)
        self.gallery = Gallery(shortcuts=[*self._keys, NONE_KEY, UNDO])
        self.gallery.on_msg(lambda _, message, __: self._press(message))
        self._status, self._about, self._saved = (ui.text(f"tcnaps-{name}") for name in ("status", "about", "saved"))
        self._arrange()

    def load(self) -> None:
        self.corrections, _ = corrections.load_corrections(self.folder)
        with self.loading("Labelling"):
            self.labels = label_images(self.folder, self.corrections, self.abstain)
        self._used, chosen = self.corrections, self.choice.pile
        self._piles = piles_of(self.folder, self.labels)
        with self.quietly():
            pile = self.controls["pile"]
            pile.options = [(f"{name} ({len(images)})", name) for name, images in self._piles.items()]
            pile.value = chosen if chosen in self._piles else next(iter(self._piles))
        about = [expected(self.labels.trust), *[OF_STUDY] * self.folder.source.startswith("study:")]
        if self.folder.truth is not None:
            about.append(f"{accuracy(self.labels)} The line below a picture is green where the best guess is right.")
        self._about.value = html.escape(" ".join(about))
        self._saved.value = "Labelled again. labels.csv is still the one that was written last." if chosen else ""
        self._turn(0)

    def _arrange(self) -> None:
        choose = self.add(
            pile=(ui.menu("Show", 260, []), lambda: self._turn(-self._number)),
            order=(ui.menu("", 170, ORDERS), lambda: self._turn(-self._number)),
            back=(ui.button("", 40, "chevron-left"), lambda: self._turn(-1)),
            forward=(ui.button("", 40, "chevron-right"), lambda: self._turn(1)),
        )
        self._page = ui.text("tcnaps-page")
        hints = {name: key for key, name in reversed(self._keys.items())} | {NONE: NONE_KEY}
        names = {f"class-{k}": name for k, name in enumerate(self.folder.classes)} | {"none": NONE}
        buttons = {name: ui.button(f"{hints.get(text, '')}  {text}".strip(), None) for name, text in names.items()}
        correct = self.add(
            **{name: (button, partial(self._choose, names[name])) for name, button in buttons.items()},
            undo=(ui.button(f"{UNDO}  undo", None), self._undo),
        )
        upload = FileUpload(accept=".json,.csv", description="Read corrections", layout={"width": "170px"})
        act = self.add(
            again=(ui.button("Label again", 120, "refresh"), self.load),
            table=(ui.button("Write labels.csv", 150, "save"), self._write_table),
            tasks=(ui.button("Write for Label Studio", 180, "save"), self._write_tasks),
            upload=(upload, self._read),
        )
        self.controls["again"].button_style = "primary"
        above = self._about, ui.row(*choose.children, self._page), correct, self.notice
        self.arrange(*above, self.gallery, ui.row(*act.children, self.busy), self._status, self._saved)

    @property
    def is_shown(self) -> bool:
        return self.labels is not None

    def _turn(self, pages: int) -> None:
        pile = self._piles[self.choice.pile]
        if self.choice.order == ORDERS[1]:
            by_hand = pile["corrected"] != ""
            pile = pd.concat([pile[by_hand], pile[~by_hand][::-1]])
        self._number = min(max(self._number + pages, 0), (len(pile) - 1) // SHOWN)
        first = self._number * SHOWN
        shown = pile[first : first + SHOWN]
        self._files = shown["file"].tolist()
        self.gallery.pictures = [self._picture(image) for image in shown.itertuples()]
        self.gallery.selected = self._files[0]
        self._page.value = f"{first + 1} to {first + len(shown)} of {len(pile)}"
        self._mark()

    def _picture(self, image: tuple) -> dict[str, str]:
        certainty = f"{image.probability:.0%}, or {image.runner_up}"
        if image.best_guess != self.choice.pile:
            certainty = f"{image.best_guess} {certainty}"
        return {
            "file": image.file,
            "address": picture(self.folder.path / image.file),
            "title": f"{image.file}: {image.corrected or certainty}",
            "name": Path(image.file).name,
            "caption": {"": certainty, "yes": "corrected"}.get(image.corrected, image.corrected),
            "verdict": "" if image.corrected else image.verdict,
        }

    def _mark(self) -> None:
        """Shows the corrections that were made since the images were labelled."""

        def text(file: str) -> str:
            now, used = self.corrections.get(file), self._used.get(file)
            return "" if now == used else f"→ {now}" if now else "taken back"

        self.gallery.marks = [text(file) for file in self._files]
        waiting = sum(text(file) != "" for file in self.corrections.keys() | self._used.keys())
        used = f", {waiting} not used yet: label again" if waiting else ""
        self._status.value = f"{counted(len(self.corrections), 'correction')} in {corrections.CORRECTIONS}{used}."

    def _press(self, message: dict) -> None:
        with self.guarded():
            if message["key"] == UNDO:
                self._undo()
            elif message["file"] in set(self.folder.images["file"]):  # though its page may have been turned meanwhile
                self._correct({message["file"]: self._keys.get(message["key"], NONE)})

    def _choose(self, label: str) -> None:
        if (file := self.gallery.selected) in self._files:
            self._correct({file: label})
            self.gallery.selected = self._files[min(self._files.index(file) + 1, len(self._files) - 1)]

    def _correct(self, changes: dict[str, str]) -> None:
        before = {file: self.corrections.get(file) for file in changes}
        self._save(changes)
        self._before.append(before)

    def _undo(self) -> None:
        if self._before:
            changes = self._before[-1]
            self.gallery.selected = next((file for file in self._files if file in changes), self._files[0])
            self._save(changes)
            self._before.pop()

    def _save(self, changes: dict[str, str | None]) -> None:
        corrections.save_corrections(self.folder, changes)
        self.corrections, _ = corrections.load_corrections(self.folder)
        self._mark()

    def _write_table(self) -> None:
        self._use_corrections()
        write_labels(self.folder.path, self.labels.table)
        self._saved.value = f"Wrote {html.escape(str(self.folder.path / 'labels.csv'))}."

    def _write_tasks(self) -> None:
        self._use_corrections()
        write_text(self.folder.path / TASKS, corrections.label_studio_tasks(self.folder, self.labels))
        self._saved.value = f"Wrote {html.escape(str(self.folder.path / TASKS))}, to be imported into Label Studio."

    def _use_corrections(self) -> None:
        if self.corrections != self._used:
            self.load()

    def _read(self) -> None:
        uploads = self.choice.upload
        self.put(upload=())
        for upload in uploads:
            with tempfile.TemporaryDirectory() as temporary:
                file = Path(temporary, Path(upload["name"]).name)
                file.write_bytes(upload["content"])
                found, gone = corrections.read_corrections(file, self.folder)
            self._correct(found)
            absent = f" Not in the folder: {counted(len(gone), 'image')} of {upload['name']}." if gone else ""
            self._saved.value = html.escape(f"Read {counted(len(found), 'correction')}.{absent}")
