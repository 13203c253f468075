"""Notes on phrases whose characters are ignored, except for ordinary separators."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.engine import connect
from runnel.language.phrase_notes import phrase_notes


@pytest.mark.parametrize(
    ("phrase", "ignored"),
    [
        ("c++", "+"),
        ("rock*", "*"),
        ("h?ll", "?"),
        ("C#", "#"),
        (".net core", "."),
        ("at&t $5", "& $"),
        ("東京 ©", "©"),
    ],
)
def test_note_names_the_ignored_characters(phrase: str, ignored: str) -> None:
    (note,) = phrase_notes(f"create feed C from A where title contains '{phrase}';")
    assert note.position == (1, 43)
    assert f": {ignored} {'is' if len(ignored) == 1 else 'are'} ignored" in note.text


@pytest.mark.parametrize(
    "condition",
    [
        "x contains 'O''Reilly'",
        "x contains 'state-of-the-art, U.S. (new) „so“ a/b'",
        "x contains 'soft\u00adhyphen e\u0301'",
        "x contains pattern 'rock*'",
        "x contains any pattern ('rock*')",
        "x = 'contains ''c++'''",
        "x = 'c++'",
        "\"contains 'c++'\" exists -- contains 'c++'",
        "x contains '+'",
    ],
)
def test_ordinary_separators_have_no_note(condition: str) -> None:
    assert phrase_notes(f"create feed C from A where {condition};") == []


def test_each_phrase_has_its_own_note_and_position() -> None:
    text = "create feed C from A\n where x CONTAINS Any ('a', 'c++',\n  'rock*') stemmed in english;"
    assert [note.position for note in phrase_notes(text)] == [(2, 29), (3, 3)]


def test_result_of_the_statement_shows_its_notes(tmp_path: Path) -> None:
    with connect(tmp_path / "workspace") as engine:
        registered, plain, noted = engine.execute(
            "register feed A; create feed B from A where title contains 'rock';\n"
            "create feed C from A where title contains 'c++';"
        )
        assert registered.lines == plain.lines == ()
        assert noted.message == "created feed C"
        assert noted.lines == (f"note: {noted.to_json()['notes'][0]}",)
        assert "contains 'c++' finds the word c" in noted.lines[0]
        (hint,) = [line for line in noted.lines if "matches 'c\\+\\+'" in line]
        engine.execute(f"create feed D from A where title {hint[hint.index('matches') : -1]};")
