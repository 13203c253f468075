"""Operators on texts: languages, near-duplicates, similarity letter by letter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.text.language import Language
from runnel.matching.operators.builtin.text.near_duplicate import NearDuplicate, shingles
from runnel.matching.operators.builtin.text.similarity import MEASURES, Similarity
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext

HEADLINES = {
    "en": "Rock concert in the park tonight",
    "fr": "Le président annonce des élections",
    "de": "Bundestag beschließt neues Gesetz",
    "es": "El presidente anuncia elecciones",
    "it": "Sciopero dei treni lunedì",
    "pt": "O presidente anuncia eleições",
    "nl": "De regering kondigt verkiezingen aan",
    "pl": "Prezydent ogłasza wybory",
    "ru": "Президент объявил выборы",
    "el": "Ο πρόεδρος ανακοίνωσε εκλογές",
    "ar": "الرئيس يعلن عن الانتخابات",
    "zh": "总统宣布选举",
    "ja": "大統領が選挙を発表した",
    "ko": "대통령이 선거를 발표했다",
    "tr": "Cumhurbaşkanı seçim ilan etti",
}


@pytest.fixture(scope="module")
def language() -> Language:
    return Language(OperatorContext())


def number(answer: Answer) -> float:
    """The one number of an answer."""
    assert not isinstance(answer, FailedCall)
    ((value,),) = answer
    assert isinstance(value, float)
    return value


def test_languages_of_headlines_are_identified(language: Language) -> None:
    answers = language.answer([OperatorCall({"title": (text,)}) for text in HEADLINES.values()])
    codes = []
    for answer in answers:
        assert not isinstance(answer, FailedCall)
        ((code, confidence),) = answer
        assert isinstance(confidence, float)
        assert 0 < confidence <= 1
        codes.append(code)
    assert codes == list(HEADLINES)


def test_an_attribute_of_the_call_replaces_the_default_attributes(language: Language) -> None:
    calls = [
        OperatorCall({"title": (HEADLINES["en"],)}, ((HEADLINES["fr"],),)),
        OperatorCall({"title": (HEADLINES["en"],)}, ((),)),
    ]
    french, nothing = language.answer(calls)
    assert not isinstance(french, FailedCall)
    assert french[0][0] == "fr"
    assert nothing == ()


@pytest.mark.parametrize("attributes", [{}, {"title": ("",)}, {"title": ("12 - 34!",)}, {"title": (7.0, True)}])
def test_texts_without_letters_have_no_language(language: Language, attributes: dict[str, tuple[str, ...]]) -> None:
    assert language.answer([OperatorCall(attributes)]) == [()]


def test_languages_can_be_limited() -> None:
    limited = Language(OperatorContext({"languages": "fr, it", "results": "code", "attributes": "summary"}))
    assert limited.answer([OperatorCall({"summary": (HEADLINES["es"],), "title": (HEADLINES["fr"],)})]) == [
        (("it",),)
    ]
    assert Language(OperatorContext({"results": "code"})).answer([OperatorCall({"title": (HEADLINES["es"],)})]) == [
        (("es",),)
    ]
    sure = Language(OperatorContext({"least": "0.99"}))
    assert sure.answer([OperatorCall({"title": ("Muse",)})]) == [()]


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("languages", "en, tlh", "'tlh' is not a supported language"),
        ("results", "name", "unknown result"),
        ("least", "2", "expected a number from 0 to 1"),
    ],
)
def test_invalid_language_options_are_refused(setting: str, value: str, words: str) -> None:
    with pytest.raises(OperatorRefusedError, match=words):
        Language(OperatorContext({setting: value}))


TEXTS = st.text(st.sampled_from("abc dé"), max_size=40)


@settings(deadline=None, max_examples=100)
@given(TEXTS, TEXTS, st.integers(1, 4))
def test_share_is_the_jaccard_similarity_of_shingles(one: str, other: str, length: int) -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        cut = text.split()
        return (
            {tuple(cut[start : start + length]) for start in range(max(1, len(cut) - length + 1))} if cut else set()
        )

    near = NearDuplicate(OperatorContext({"words": str(length), "attributes": "text"}))
    (answer,) = near.answer([OperatorCall({"text": (other,)}, (one,))])
    first, second = runs(one), runs(other)
    if not one.strip():
        assert isinstance(answer, FailedCall)
    elif not second:
        assert answer == ()
    else:
        assert number(answer) == pytest.approx(len(first & second) / len(first | second))


def test_two_versions_of_a_report_are_near_duplicates() -> None:
    report = "Muse announce a tour of small halls across Europe next spring, with tickets on sale from Friday"
    copy = f"{report.upper()}, their label said."
    other = "The government announces elections for next spring, and a tax on tickets from Friday"
    near = NearDuplicate(OperatorContext({"least": "0.1"}))
    alike, different, same = near.answer(
        [OperatorCall({"title": (text,)}, (report,)) for text in (copy, other, report)]
    )
    assert number(alike) > 0.8
    assert different == ()
    assert number(same) == 1.0
    assert len(shingles("x " * 200_000, 3)) == 1


@pytest.mark.parametrize("measure", MEASURES)
def test_similarity_is_symmetric_and_1_for_equal_texts(measure: str) -> None:
    similarity = Similarity(OperatorContext({"measure": measure}))
    text, other = "Muse: Europe tour", "Muse tours Europe again"
    there, back, same = similarity.answer(
        [OperatorCall({}, ((a,), b)) for a, b in ((text, other), (other, text), (text, text))]
    )
    assert number(there) == pytest.approx(number(back))
    assert 0 < number(there) <= number(same) == 1.0


def test_each_measure_ignores_the_documented_differences() -> None:
    def score(measure: str, text: str, other: str) -> float:
        return number(
            Similarity(OperatorContext({"measure": measure})).answer([OperatorCall({"title": (text,)}, (other,))])[0]
        )

    assert score("token_sort", "Tour Muse", "muse tour!") == 1.0
    assert score("ratio", "Tour Muse", "muse tour!") < 0.7
    assert score("token_set", "Muse on a long tour of Europe", "muse tour") == 1.0
    assert score("partial", "Muse on a long tour of Europe", "long tour") == 1.0
    assert score("ratio", "Radiohead", "Radiohaed") > 0.85


def test_the_most_similar_value_counts() -> None:
    similarity = Similarity(OperatorContext({"least": "0.9"}))
    calls = [
        OperatorCall({}, (("Blur", 7.0, "Muse"), "muse")),
        OperatorCall({}, (("Blur",), "muse")),
        OperatorCall({}, (("!",), "muse")),
    ]
    assert similarity.answer(calls) == [((1.0,),), (), ()]


@pytest.mark.parametrize("made", [NearDuplicate, Similarity])
@pytest.mark.parametrize("inputs", [(), (7.0,), (" ",), ("a", "b")])
def test_calls_without_a_text_fail_only_themselves(
    made: type[NearDuplicate] | type[Similarity], inputs: tuple[str | float, ...]
) -> None:
    wrong, right = made(OperatorContext()).answer(
        [OperatorCall({"title": ("a",)}, inputs), OperatorCall({"title": ("a",)}, ("a",))]
    )
    assert isinstance(wrong, FailedCall)
    assert number(right) == 1.0


def test_an_unknown_measure_is_refused() -> None:
    with pytest.raises(OperatorRefusedError, match="is not a valid value") as caught:
        Similarity(OperatorContext({"measure": "soundex"}))
    assert caught.value.hint == "use one of ratio, partial, token_sort, token_set"
