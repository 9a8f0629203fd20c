"""Checkpoints of two runs: the same, different, or not to be compared."""

from orchestrator.advice.rehearsal.same_bytes import FileDigest, Likeness, compare

A, B, C = (FileDigest(letter * 64) for letter in "abc")


def likeness(ours, theirs):
    """Compare two checkpoints of one step."""
    found = compare({7: ours}, {7: theirs})
    return found.likeness, found.differ


def test_the_newest_step_that_both_have_is_compared():
    """A run that was disturbed may have saved at other steps."""
    found = compare({10: {"m": A}, 30: {"m": B}}, {10: {"m": A}, 20: {"m": C}})
    assert (found.likeness, found.step) == (Likeness.SAME, 10)
    assert compare({10: {"m": A}}, {20: {"m": A}}) is None


def test_a_file_of_other_bytes_or_one_too_many_makes_a_difference():
    """The files are named."""
    assert likeness({"m": A, "o": B}, {"m": A, "o": C}) == (Likeness.DIFFERENT, ("o",))
    assert likeness({"m": A}, {"m": A, "o": C}) == (Likeness.DIFFERENT, ("o",))


def test_notes_beside_the_numbers_may_differ():
    """Logs of times and paths are no model; where there is nothing else, they are what was saved."""
    assert likeness({"m": A, "trainer_state.json": B}, {"m": A, "trainer_state.json": C})[0] is Likeness.SAME
    assert likeness({"state.json": B}, {"state.json": C})[0] is Likeness.DIFFERENT


def test_an_archive_with_other_times_is_compared_by_its_members():
    """The time of a save is in the archive of Keras; the weights are the same."""
    ours = FileDigest("a" * 64, {"weights.h5": 1, "metadata.json": 5})
    assert likeness({"m": ours}, {"m": FileDigest("b" * 64, {"weights.h5": 1, "metadata.json": 6})}) == (
        Likeness.SAME, (),
    )  # fmt: skip
    assert likeness({"m": ours}, {"m": FileDigest("b" * 64, {"weights.h5": 2})})[0] is Likeness.DIFFERENT


def test_files_with_random_names_are_compared_by_their_bytes_or_not_at_all():
    """TensorStore names its data files at random: other bytes there prove nothing."""
    ours = {"default/manifest.ocdbt": A, "default/d/1f": B}
    assert likeness(ours, {"default/manifest.ocdbt": C, "default/d/77": B})[0] is Likeness.SAME
    assert likeness(ours, {"default/manifest.ocdbt": C, "default/d/77": C})[0] is Likeness.UNKNOWN
