"""The statements of the language, as its reference describes them. A test parses every example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of the language: how it is written, what it does, and an example that parses."""

    title: str
    syntax: str
    meaning: str
    example: str


STATEMENTS: tuple[Entry, ...] = (
    Entry(
        "register feed",
        "register feed 'path or URL' as Name [clause]…;\nregister feed Name [clause]…;\n\n"
        "clause: every duration | title 'text' | home 'URL' | tagged tag [, tag]…\n"
        "  | open [to number items per minute]",
        "Declares a source feed. With an address, its items are read from there; without one, they come from "
        "`publish`. `every` is the polling interval of a web address. The title, the home page and the tags "
        "are shown to "
        "users and written to OPML files. `all feeds tagged …` selects feeds by their tags. With `open`, anyone may "
        "publish into the feed over HTTP ([Let anyone publish](../guides/let-anyone-publish.md)). Clauses may be "
        "written in any order, each at most once.",
        "register feed 'https://muse.example/rss' as MuseNews every 10 minutes title 'News of Muse' tagged music;\n"
        "register feed Friends;\n"
        "register feed Tips open to 100 items per minute;",
    ),
    Entry(
        "register feed … apply",
        "register feed Feed apply 'stylesheet' as Name;",
        "Declares a materialized feed: a source feed whose items a stylesheet creates from those of another "
        "feed. The "
        "stylesheet is a file in the workspace's directory `sheets`. A later change of the file has no effect.",
        "register feed MusePhotos apply 'IncludePhotos.xsl' as MuseWithPhotos;",
    ),
    Entry(
        "register operator",
        "register operator Name [( parameter [, parameter]… )] from 'source' [option]…;\n\n"
        "parameter: name text|number|int|boolean|date | name attribute | ?name text|number|int|boolean|date\n"
        "option: release 'text' | cost number us|ms|seconds | pure | impure | reading attribute [, attribute]…\n"
        "  | batch number | limit number us|ms|seconds | concurrency number\n"
        "  | budget number calls per minute | budget number seconds per minute\n"
        "  | on error unknown | on error retry [for duration] | with ( key 'value' [, key 'value']… )",
        "Declares an operator: a predicate that is implemented by code and called in conditions. The source "
        "is the name of an "
        "installed operator, or `module:function` of a module that the setting `operator_modules` allows. A "
        "parameter takes a constant, or, if its type is `attribute`, an attribute of the item; a name with `?` is a "
        "result. Without parameters, the operator "
        "has those that its code declares. Options may be written in any order, each at most once. If the "
        "name exists, the "
        "operator is replaced, and the queries that use it use the new one. Only the admin can register operators, "
        "and only locally, not with an API token. [Write an operator](../guides/write-an-operator.md) "
        "describes the options.",
        "register operator mobPattern(?people int) from 'city.vision:mob_pattern' cost 40 ms;\n"
        "register operator near(place text, ?metres number) from 'distance' on error retry for 6 hours\n"
        "  with (places 'places.geojson');",
    ),
    Entry(
        "register prefix",
        "register prefix name as 'IRI';",
        "Declares a prefix of IRIs for graph patterns that are written from now on. An existing prefix is "
        "replaced; queries are stored with full IRIs, so earlier queries do not change. "
        "Only the admin can register prefixes, and only locally, not with an API token; a pattern can "
        "define its own.",
        "register prefix ex as 'http://muse.example/terms#';",
    ),
    Entry(
        "register table",
        "register table Name ( column [, column]… ) [clause]…;\n\n"
        "column: name text|number|date|boolean [key]\n"
        "clause: as rows | as debezium | keep duration | ordered by column",
        "Declares a table. `publish` changes its rows ([Keep tables](../guides/keep-tables.md)). The columns with "
        "`key` identify a row; a column has at most one value. Changes are written as rows, or as change events of "
        "Debezium. With `keep`, the runner deletes rows that were not changed for the duration. With `ordered by`, a "
        "change is skipped if its value of the column is smaller than that of the row. A table that is registered "
        "again may have additional columns and another `as` and `keep`. Feeds cannot read tables yet.",
        "register table Stocks (symbol text key, per number, checked date) keep 30 days ordered by checked;\n"
        "register table Reviews (id text key, symbol text, rating number) as debezium;",
    ),
    Entry(
        "create feed",
        "create [or replace] feed Name [tagged tag [, tag]…] from term [| term]… [join …]… [distinct …]\n"
        "  [where conditions];\n\n"
        "term: Feed [as $variable] | all feeds [tagged tag [, tag]…] [as $variable]\n"
        "  | ( term [| term]… ) [as $variable]",
        "Declares a virtual feed: the items of all its terms that satisfy the conditions. `|` is a union; a group in "
        "parentheses, or a single feed, may be named by a variable. `all feeds` are the registered feeds of the "
        "query's owner and of the admin; a feed that is registered later is included from then on. With "
        "`tagged`, only feeds that have all of the tags are read. Materialized feeds are not included. "
        "`or replace` keeps the subscriptions. Tags are not case-sensitive. "
        "Options such as `runnel queries --tag` select virtual feeds by their tags.",
        "create feed RockConcerts tagged music, beta from (Friends | Events as $e | Followed) as $r\n"
        "  where $e[title contains 'rock'] and $r[description contains 'concert'];",
    ),
    Entry(
        "create feed … join",
        "create feed Name from … join last window on term with $variable[conditions] [join …]…\n"
        "  [where conditions];\n\n"
        "window: duration | number items",
        "Declares a virtual feed of items that join a recent item of other feeds. "
        "[Join feeds with recent items of other feeds](../guides/join-feeds.md) has examples. `on` names "
        "the other feeds. For each item, the window holds the earlier items of these feeds: those that "
        "were accepted less than the duration before it (at most 366 days), or the given number of most recent ones "
        "(at most 1,000,000). The variable names the part of `from` whose items "
        "are joined; the other items pass unchanged. In the conditions, an attribute of the window item stands on "
        "the right of `=`, `!=`, `<`, `<=`, `>`, `>=`, `contains`, `similar [to]`, `references`, `extends` or "
        "`shares`, as `window.title` or `window.item`. An item passes if the conditions hold for it and at least one "
        "item of the window. The window items that it joins are attached to it as an *annotation*: a list with the "
        "name of the window's variable, or `join1`, `join2` by position. Conditions in `where` on a "
        "variable of the window filter the "
        "items before they enter the window. A query has at most 8 joins. An item must satisfy every join "
        "whose variable includes it.",
        "create feed MusePhotos from (RockConcerts as $r | MuseNews) as $main\n"
        "  join last 3 months on (MusicPhotos as $m | FriendsPhotos) as $photos\n"
        "    with $main[title similar window.title]\n"
        "  join last 500 items on Tweets with $r[link shares window.link and language = window.language]\n"
        "  where $r[description contains 'Muse'] and $m[category = 'rock'];",
    ),
    Entry(
        "create feed … distinct",
        "create feed Name from term [| term]… distinct [by attribute, …] [within duration] [where conditions];",
        "Declares a virtual feed without duplicates. An item that satisfies the conditions is dropped if an earlier "
        "item has the same values of the attributes after `by` (default: the item's id) and was accepted "
        "less than the "
        "duration before it (default: 30 days, at most 366). [Remove duplicates](../guides/remove-duplicates.md) "
        "defines equality.",
        "create feed MuseNews from (Wire | Agency | Blog) distinct by title within 2 days\n"
        "  where title contains 'muse';",
    ),
    Entry(
        "subscribe",
        "subscribe to Feed [apply 'stylesheet'] output kind ['target'] [every duration] [for duration] "
        "[from last duration];",
        "Delivers a feed's items. `apply` transforms messages with a stylesheet in the directory `sheets`, `every` "
        "collects items into one message per period, `for` limits the duration of the subscription, and "
        "`from last` also "
        "delivers items of the past. The clauses after the target may be in any order. The answer shows, "
        "only once, the signing key of a webhook subscription and a *ticket*, with which anyone can renew or end "
        "the subscription.",
        "subscribe to RockConcerts output rss 'concerts.rss' every 10 minutes for 30 days from last 7 days;\n"
        "subscribe to RockConcerts apply 'Title.xsl' output mail 'me@mail.example' every 3 hours;",
    ),
    Entry(
        "unsubscribe",
        "unsubscribe number;\nunsubscribe ticket 'ticket';\nunsubscribe from Feed [output kind ['target']];",
        "Ends one subscription by its number or by its ticket, or all of your own subscriptions to a feed that have "
        "this kind and target.",
        "unsubscribe 12;\nunsubscribe ticket 'qL2x…';\nunsubscribe from RockConcerts output rss;",
    ),
    Entry(
        "renew",
        "renew subscription number [for duration];\nrenew ticket 'ticket' [for duration];",
        "Extends a subscription for this duration from now; without `for`, for as long as a new subscription lasts.",
        "renew subscription 12 for 30 days;",
    ),
    Entry(
        "rotate key",
        "rotate key of subscription number;",
        "Gives a webhook subscription a new signing key, which is shown once. For one day, messages are also signed "
        "with the old key.",
        "rotate key of subscription 12;",
    ),
    Entry(
        "tag feed",
        "tag feed Name as tag [, tag]…;\nuntag feed Name;",
        "Replaces the tags of a source feed, or removes them. Queries that read `all feeds tagged …` are updated "
        "immediately.",
        "tag feed MuseNews as music, beta;\nuntag feed Friends;",
    ),
    Entry(
        "drop feed",
        "drop feed Name [cascade];",
        "Removes a feed. This is refused while other feeds or subscriptions depend on it; `cascade` removes "
        "them, too.",
        "drop feed RockConcerts cascade;",
    ),
    Entry(
        "drop operator",
        "drop operator Name [cascade];",
        "Removes an operator. This is refused while queries use it; `cascade` removes them, too.",
        "drop operator mobPattern;",
    ),
    Entry(
        "drop prefix",
        "drop prefix name;",
        "Removes a prefix. Queries that were written with it do not change.",
        "drop prefix ex;",
    ),
    Entry(
        "drop table",
        "drop table Name;",
        "Removes a table and its rows.",
        "drop table Stocks;",
    ),
    Entry(
        "pause and resume",
        "pause feed Name;\nresume feed Name;\npause subscription number;\nresume subscription number;",
        "`pause` suspends a feed or a subscription, and `resume` continues it. A paused source feed is not "
        "read, and a "
        "paused virtual feed matches nothing. A paused subscription delivers nothing; after `resume`, it "
        "delivers all "
        "matches since the pause.",
        "pause feed MuseNews;\nresume subscription 3;",
    ),
    Entry(
        "show",
        "show feeds;\nshow tables;\nshow subscriptions;\nshow operators;\nshow prefixes;\nshow quarantine;\n"
        "show dead letters;\nshow feed Name;\nshow operator Name;",
        "Lists declarations, the quarantine or the dead letters, or shows one feed or operator.",
        "show feeds;\nshow feed RockConcerts;",
    ),
    Entry(
        "show rows",
        "show rows Table [where conditions];",
        "Shows the rows of a table that satisfy the conditions, sorted by key, and counts them. At most 1,000 are "
        "shown. The conditions read columns as attributes; they cannot have variables or operators.",
        "show rows Stocks where per between 45 and 70 and not note contains 'delisted';",
    ),
    Entry(
        "explain feed",
        "explain feed Name;",
        "Shows how a feed is computed, what it shares with others, and what it costs.",
        "explain feed RockConcerts;",
    ),
    Entry(
        "explain message",
        "explain message 'key';",
        "Shows what is in a message, and every failed attempt to deliver it.",
        "explain message '5f3a-12-7';",
    ),
    Entry(
        "replay",
        "replay message 'key';\nreplay subscription number;",
        "Sends a dead letter, or all dead letters of a subscription, again, under the same key.",
        "replay message '5f3a-12-7';\nreplay subscription 12;",
    ),
    Entry(
        "send now",
        "send subscription number now;\nsend all now;",
        "Immediately sends the messages that are waiting for another attempt, for example after an endpoint was"
        " repaired. With a number it also resumes the subscription if it was disabled, or asks its target "
        "once more to confirm."
        " `replay` sends dead letters again.",
        "send subscription 12 now;\nsend all now;",
    ),
    Entry(
        "confirm",
        "confirm subscription number 'code';\nconfirm subscription number;",
        "Confirms that the target of an owner's subscription agreed to get messages. The owner enters the code that"
        " the target received. The admin needs no code, and can also confirm a target that refused.",
        "confirm subscription 12 'K3QX-7RWM-A2PD-JYTE-5LHV-N4GC';\nconfirm subscription 12;",
    ),
    Entry(
        "why item",
        "why item 'id' in Feed;",
        "Shows which conditions made an item match, or not match, a feed.",
        "why item 'https://muse.example/1' in RockConcerts;",
    ),
    Entry(
        "preview",
        "preview create feed … [over last duration];\npreview feed Name [over last duration];",
        "Shows what a query would have matched among the stored items. It declares and delivers nothing.",
        "preview create feed Jazz from MuseNews where title contains 'jazz' over last 7 days;",
    ),
)
