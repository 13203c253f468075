"""The Python API: parameters, typed answers, and scripts that contain questions."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.in_process import InProcess

from runnel.engine import Engine
from runnel.engine.answers import FeedDone, Listing, Subscribed
from runnel.errors import NotFoundError, Span, StatementError
from runnel.testing import FakeClock

WIRE = "register feed Wire;"


# --- parameters --------------------------------------------------------------------------------------------------


def test_a_parameter_is_a_constant_of_the_declared_query(engine: Engine) -> None:
    word = "it's; drop feed Wire cascade; --"
    engine.execute(f"{WIRE} create feed Rock from Wire where title = :word;", word=word)
    statement = engine.feed("Rock").feed.statement
    assert statement == "create feed Rock from Wire where title = 'it''s; drop feed Wire cascade; --';"
    assert engine.test([{"title": word}, {"title": "it's"}]).counts == (("Rock", 1),)


def test_an_unused_parameter_is_refused_before_anything_is_declared(engine: Engine) -> None:
    with pytest.raises(StatementError, match="a value was passed for :wrod") as caught:
        engine.execute(f"-- feeds\n{WIRE} create feed Rock from Wire where title = :word;", word="a", wrod="b")
    assert caught.value.span == Span(2, 1, 9)
    assert caught.value.hint == "did you mean word?"
    assert engine.feeds() == []


def test_unknown_parameter_is_refused_with_its_position(engine: Engine) -> None:
    with pytest.raises(StatementError, match="no value was passed for the parameter :word") as caught:
        engine.execute(f"{WIRE}\ncreate feed Rock from Wire where title = :word;")
    assert caught.value.span == Span(2, 42, 47)
    assert engine.feeds() == []


def test_parameter_may_be_named_like_an_argument_of_execute(engine: Engine) -> None:
    answers = engine.execute("register feed Wire; create feed Rock from Wire where title = :text;", text="rock")
    assert [answer.message for answer in answers] == ["registered feed Wire", "created feed Rock"]


def test_phrases_of_parameters_get_their_notes(engine: Engine) -> None:
    engine.execute(WIRE)
    (answer,) = engine.execute("create feed Code from Wire where title contains :word", word="c++")
    assert answer.lines[0].startswith("note: contains 'c++' finds the word c")


# --- scripts with questions --------------------------------------------------------------------------------------


def test_questions_are_answered_at_their_position_in_the_script(engine: Engine) -> None:
    answers = engine.execute(f"show feeds; {WIRE} create feed Rock from Wire; show feeds; show feed Rock;")
    assert [answer.message for answer in answers] == [
        "0 feeds",
        "registered feed Wire",
        "created feed Rock",
        "2 feeds",
        "feed Rock",
    ]


def test_a_question_before_the_declarations_does_not_see_them(engine: Engine) -> None:
    with pytest.raises(StatementError, match="there is no feed Wire") as caught:
        engine.execute(f"show feed Wire; {WIRE}")
    assert caught.value.span == Span(1, 1, 5)
    assert "applied" not in str(caught.value.hint)
    assert engine.feeds() == []


def test_a_question_between_declarations_is_refused_and_nothing_is_declared(engine: Engine) -> None:
    with pytest.raises(StatementError, match="cannot come between declarations") as caught:
        engine.execute(f"{WIRE}\nshow feeds;\nregister feed Other;")
    assert caught.value.span == Span(2, 1, 5)
    assert engine.feeds() == []


def test_the_answer_of_a_script_of_questions_alone_has_their_order(engine: Engine) -> None:
    assert [answer.message for answer in engine.execute("show prefixes; show feeds; show quarantine;")][1:] == [
        "0 feeds",
        "0 quarantined",
    ]


# --- matches -----------------------------------------------------------------------------------------------------


def test_matches_of_a_feed_without_subscriptions_are_refused_at_once(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Rock from Wire;")
    for name in ("Wire", "Rock"):
        with pytest.raises(
            NotFoundError, match=f"no matches of {name} are recorded, because nobody subscribes"
        ) as caught:
            engine.matches(name)
        assert f"subscribe to {name} output log" in str(caught.value.hint)


def test_matches_of_a_subscribed_feed_may_be_none(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Rock from Wire; create feed Top from Rock; subscribe to Top output log;")
    assert list(engine.matches("Top")) == []
    assert list(engine.matches("Rock")) == [], "it is recorded because Top reads it"
    engine.execute("pause feed Rock;")
    assert list(engine.matches("Rock")) == []


def test_matches_of_a_subscription_that_ended_are_still_there(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Rock from Wire where n > 1; subscribe to Rock output log;")
    engine.publish("Wire", [{"id": "1", "n": 1}, {"id": "2", "n": 2}])
    runner = InProcess(engine)
    runner.match()
    runner.close()
    engine.execute("unsubscribe from Rock;")
    assert [match.item.id for match in engine.matches("Rock")] == ["2"]
    assert list(engine.matches("Rock", after=2)) == []


def test_matches_of_an_admins_feed_require_the_owners_subscription(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Rock from Wire; subscribe to Rock output log;")
    engine.owners.add("ann")
    ann = engine.acting_as("ann")
    with pytest.raises(NotFoundError, match="because you do not subscribe to it"):
        ann.matches("Rock")
    ann.execute("subscribe to Rock output log;")
    assert list(ann.matches("Rock")) == []


# --- answers -----------------------------------------------------------------------------------------------------


def test_answers_are_typed(engine: Engine) -> None:
    registered, created, subscribed, listed = engine.execute(
        f"{WIRE} create feed Rock from Wire where title contains 'c++'; subscribe to Rock output log; show feeds;"
    )
    assert registered == FeedDone("registered feed Wire", "Wire", 1)
    assert isinstance(created, FeedDone)
    assert created.feed == "Rock"
    assert created.notes[0].startswith("contains 'c++' finds the word c")
    assert isinstance(subscribed, Subscribed)
    assert (subscribed.subscription, subscribed.target, subscribed.key) == (1, None, None)
    assert len(subscribed.ticket) > 20
    assert isinstance(listed, Listing)
    assert [row.name for row in listed.rows] == ["Wire", "Rock"]
    assert listed.rows == tuple(engine.feeds())


def test_an_answer_is_text_and_json(engine: Engine) -> None:
    engine.execute(WIRE)
    (answer,) = engine.execute("show feeds")
    assert str(answer) == "1 feeds\n  register feed Wire;"
    assert answer.to_json() == {
        "message": "1 feeds",
        "feeds": [
            {
                "id": 1,
                "name": "Wire",
                "owner": "admin",
                "kind": "source",
                "matched": False,
                "paused": False,
                "revision": 1,
                "statement": "register feed Wire;",
                "tags": [],
                "title": None,
                "home": None,
                "open": False,
            }
        ],
    }
    (noted,) = engine.execute("create feed Code from Wire where title contains :word", word="c++")
    assert noted.to_json() == {"message": "created feed Code", "feed": "Code", "id": 2, "notes": list(noted.notes)}
    assert str(noted) == f"created feed Code\n  note: {noted.notes[0]}"


def test_every_answer_is_immutable(engine: Engine) -> None:
    (answer,) = engine.execute(WIRE)
    with pytest.raises(FrozenInstanceError):
        answer.notes = ("changed",)  # type: ignore[misc]


def test_lists_have_typed_rows(engine: Engine, clock: FakeClock) -> None:
    engine.execute(f"{WIRE} create feed Rock tagged music from Wire where n > 1;")
    engine.execute("subscribe to Rock output rss 'rock.xml' every 2 hours for 3 days;")
    (wire, rock) = engine.feeds()
    assert (wire.kind, rock.kind, rock.tags, rock.is_matched) == ("source", "virtual", ("music",), True)
    (subscription,) = engine.subscriptions()
    assert (subscription.id, subscription.feed, subscription.every) == (1, "Rock", timedelta(hours=2))
    assert subscription.expires == datetime.fromtimestamp(clock(), UTC) + timedelta(days=3)
    details = engine.feed("Rock")
    assert (details.reads, details.read_by, details.subscriptions, details.state) == (("Wire",), (), (1,), "matched")
    assert (engine.quarantine(), engine.dead_letters(), engine.operators()) == ([], [], [])
    assert [prefix.is_registered for prefix in engine.prefixes()][:1] == [False]


def test_why_explain_and_preview_are_typed(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Rock from Wire where n > 1;")
    engine.publish("Wire", [{"id": "1", "n": 1}, {"id": "2", "n": 2}])
    why = engine.why("2", "Rock")
    assert (why.holds, why.recorded, why.source) == (True, None, "Wire")
    assert why.trace[-1].strip() == "✓ n > 1  [2]"
    assert why == engine.execute("why item :item in Rock", item="2")[0]
    assert engine.explain("Rock").statement == "create feed Rock from Wire where n > 1;"
    preview = engine.preview("Rock")
    assert (preview.matched, preview.looked_at) == (1, 2)
    assert preview == engine.execute("preview feed Rock")[0]
