"""
`auto`: recognise the format that the job saves in, and delegate to it.

The choice is stable: the format of the newest commit wins over what lies in the folder. Only single files,
which anything may write, give way to a framework's format once that has a complete save.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import AbstractSet, Dict, FrozenSet, Iterator, List, Optional, Tuple

from orchestrator.contract.formats.base import (
    UNKNOWN,
    BucketSave,
    Format,
    Listing,
    LocalSave,
    SaveState,
    SaveVerdict,
)
from orchestrator.contract.formats.fairseq import Fairseq
from orchestrator.contract.formats.files import Files
from orchestrator.contract.formats.folders import Accelerate, Distributed, Levanter
from orchestrator.contract.formats.hf import HuggingFace
from orchestrator.contract.formats.keras import Keras
from orchestrator.contract.formats.marker import Marker
from orchestrator.contract.formats.orbax import Orbax
from orchestrator.contract.formats.survey import ROOT, FolderSurvey, survey, survey_bucket
from orchestrator.contract.formats.tf import TensorFlow
from orchestrator.contract.formats.torch import Torch
from orchestrator.contract.preemption_notice import TRAINER_SAVES

SURVEY_AGAIN = 20


class Auto(Format):
    """Delegate to the chosen format; before the choice behave as none, with a grace long enough for each."""

    name = "auto"
    may_change = True
    wants = "the layout of a known framework, or a whole file that looks like a save"
    grace = TRAINER_SAVES

    def __init__(self, marker: str) -> None:
        self._marker = marker
        strong: Tuple[Format, ...] = (
            Marker(marker), HuggingFace(), Accelerate(), Orbax(), Distributed(), Levanter(), Keras(),
            TensorFlow(), Fairseq(), Torch(),
        )  # fmt: skip
        self._strong: Dict[str, Format] = {one.name: one for one in strong}
        self._files = Files(lambda folder: folder in self._assigned)
        self._chosen: Optional[Format] = None
        self._assigned: AbstractSet[str] = frozenset()
        self._bases: Tuple[str, ...] = ()
        self._saves: Dict[str, Tuple[LocalSave, Format, str, LocalSave]] = {}
        self._adopted: Optional[str] = None
        self._polls = 0

    @property
    def chosen(self) -> str:
        """Return the name of the chosen format, empty before the choice."""
        return self._chosen.name if self._chosen else ""

    @property
    def stopped_codes(self) -> FrozenSet[int]:  # type: ignore[override]
        return self._chosen.stopped_codes if self._chosen else frozenset()

    @property
    def zero_proves(self) -> bool:  # type: ignore[override]
        return self._chosen.zero_proves if self._chosen else True

    @property
    def pointers(self) -> Tuple[str, ...]:  # type: ignore[override]
        """Return the pointer files of the chosen format, one for each folder with saves."""
        names = self._chosen.pointers if self._chosen else ()
        return tuple(_joined(base, name) for base in self._bases for name in names)

    def continue_as(self, name: str, base: Optional[str] = None) -> None:
        """Choose the format in which the newest checkpoint was committed."""
        # A restored folder may lack the file by which the format is recognised (fairseq, TensorFlow).
        self._adopted = base if name in self._strong else None
        if name == self._files.name:
            self._chosen = self._files
        elif name in self._strong:
            self._chosen = self._strong[name]

    def find(self, root: Path) -> List[LocalSave]:
        """Return the saves of the chosen format from all folders; before the choice, those of every format."""
        surveyed = survey(root, self._marker)
        # Surveyed each time, because the job may have started to save in another format.
        self._assigned, self._saves = surveyed.assigned, {}
        # Single files are the weakest evidence: a framework's format may still replace them.
        for format_ in (self._chosen,) if self._is_strong() else self._strong.values():
            self._add(root, format_, surveyed)
        if not self._is_strong():
            # Last, so that a file of a framework's save does not count a second time.
            for save in self._files.find(root):
                self._saves.setdefault(save.name, (save, self._files, "", save))
        return [one[0] for one in self._saves.values()]

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Return the verdict of the save's format; the first format with a complete save is chosen."""
        format_, base, inner = self._lower(save)
        judged = format_.judge(_folder(root, base), inner)
        # Only a complete save decides: by name alone, files may be weights that the job starts from.
        if judged.state is SaveState.COMPLETE and not self._is_strong() and self._chosen is not format_:
            self._chosen = format_
        return judged

    def owns(self, save: LocalSave) -> bool:
        """Return whether *save* counts; single files do not once a framework's format is chosen."""
        return not (self._is_strong() and self._lower(save)[0] is self._files)

    def closes(self, name: str) -> bool:
        return self._chosen is not None and self._chosen.closes(name.rsplit("/", 1)[-1])

    def resume(self, root: str, save: LocalSave) -> str:
        format_, base, inner = self._lower(save)
        return format_.resume(str(_folder(Path(root), base)), inner)

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        format_, base, inner = self._lower(chosen)
        return format_.repair(_folder(root, base), inner)

    def target(self, root: Path, save: LocalSave) -> Optional[int]:
        format_, base, inner = self._lower(save)
        return format_.target(_folder(root, base), inner)

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """
        Yield the saves in the bucket, newest first, of the first format with a complete one.

        Once a format is chosen, usually only its folders are listed.
        """
        self._polls += 1
        # Every SURVEY_AGAIN calls all folders are listed, because the job may save elsewhere by now.
        if self._chosen not in (None, self._files) and self._bases and self._polls % SURVEY_AGAIN:
            held = list(self._stored_in(listing, self._chosen, self._bases))
            if any(one.complete for one in held):
                yield from held
                return
        surveyed = survey_bucket(listing, self._marker)
        found: Dict[str, List[BucketSave]] = {}
        for name, bases in surveyed.bases.items():
            found[name] = list(self._stored_in(listing, self._strong[name], tuple(sorted(bases))))
        files = Listing(surveyed.files, (), listing.has, listing.read, listing.below)
        found[self._files.name] = list(self._files.stored(files))
        first = [self.chosen] if self._is_strong() else []
        # In order of evidence: the format of the newest commit, frameworks' formats, single files.
        order = [*first, *self._strong, self._files.name]
        whole = [name for name in order if any(one.complete for one in found.get(name, ()))]
        chosen = next(iter(whole), "") or next((name for name in order if found.get(name)), "")
        if whole:
            self.continue_as(chosen)
            self._bases = tuple(sorted(surveyed.bases.get(chosen, ())))
        yield from found.get(chosen, [])

    def _stored_in(
        self, listing: Listing, format_: Optional[Format], bases: Tuple[str, ...]
    ) -> Iterator[BucketSave]:
        found: List[BucketSave] = []
        for base in bases if format_ is not None else ():
            level = listing
            for part in filter(None, base.split("/")):
                level = level.below(f"{part}/")
            for save in format_.stored(level) if format_ is not None else ():
                objects = tuple(_joined(base, name) for name in save.objects)
                found.append(replace(save, name=_joined(base, save.name), objects=objects))
        return iter(sorted(found, key=lambda one: one.step, reverse=True))

    def _is_strong(self) -> bool:
        return self._chosen is not None and self._chosen is not self._files

    def _add(self, root: Path, format_: Optional[Format], surveyed: FolderSurvey) -> None:
        if format_ is None:
            return
        known = {self._adopted} if format_ is self._chosen and self._adopted is not None else set()
        bases = tuple(sorted({*surveyed.bases.get(format_.name, ()), *known}))
        self._bases = bases if format_ is self._chosen else self._bases
        for base in bases:
            for inner in _saves_of(format_, root, base):
                save = _lifted(inner, root, base)
                self._saves[save.name] = (save, format_, base, inner)

    def _lower(self, save: LocalSave) -> Tuple[Format, str, LocalSave]:
        """Return a save's format, its folder, and the save with paths relative to that folder."""
        held = self._saves.get(save.name)
        if held is not None:
            return held[1], held[2], replace(held[3], step=save.step if held[3].live else held[3].step)
        base, _, name = save.folder.rpartition("/")
        return self._chosen or self._files, base, replace(save, folder=name, name=name)


def _saves_of(format_: Format, root: Path, base: str) -> List[LocalSave]:
    """Return a format's saves in a folder, newest first; the folder of all checkpoints may itself be a save."""
    if base == ROOT:
        return [LocalSave(UNKNOWN, root.name, root.name, live=True)]
    return sorted(format_.find(root / base), key=lambda one: one.step, reverse=True)


def _lifted(save: LocalSave, root: Path, base: str) -> LocalSave:
    """Return a save with its path relative to the folder of all checkpoints."""
    if base == ROOT:
        names = tuple(sorted(one.relative_to(root).as_posix() for one in root.rglob("*") if one.is_file()))
        plain = tuple(name for name in names if not name.startswith((".restore-", ".quarantine-")))
        return replace(save, name=ROOT, folder=".", files=plain)
    if save.files is not None:
        files = tuple(_joined(base, name) for name in save.files)
        return replace(save, name=_joined(base, save.name), folder=".", files=files)
    return replace(save, name=_joined(base, save.name), folder=_joined(base, save.folder))


def _folder(root: Path, base: str) -> Path:
    return root.parent if base == ROOT else root / base


def _joined(base: str, name: str) -> str:
    return f"{base}/{name}" if base else name
