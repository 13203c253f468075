"""The vocabulary of a world: topics with their words, sentence patterns, and invented people, places and companies.

All names are invented. The words of a topic are plain English, in order of popularity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

from runnel.testing.dice import Dice


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of feeds and interests, with its vocabulary. `unspaced` are phrases without spaces between words."""

    name: str
    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    verbs: tuple[str, ...]
    sections: tuple[str, ...]
    headlines: tuple[str, ...]
    unspaced: tuple[str, ...]
    emoji: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _topic(
    name: str, nouns: str, adjectives: str, verbs: str, sections: str, headlines: str, unspaced: str, emoji: str
) -> Topic:
    return Topic(
        name,
        _words(nouns),
        _words(adjectives),
        _words(verbs),
        tuple(sections.split(", ")),
        tuple(headlines.split(" | ")),
        _words(unspaced),
        emoji,
    )


TOPICS: tuple[Topic, ...] = (
    _topic(
        "sports",
        "match season coach league goal final team striker stadium cup defender derby marathon title transfer "
        "keeper penalty sprint medal referee relay tournament record captain injury comeback qualifier rowing "
        "cycling tennis fencing handball podium rally substitute trophy",
        "late decisive friendly unbeaten narrow home injured veteran youth regional dramatic goalless",
        "wins loses celebrates misses dominates reaches prepares opens closes defends rescues survives",
        "football, athletics, rowing, cycling, tennis",
        "{place} {verb} the {adjective} {noun} | {person} ready for the {noun} in {place}",
        "足球比赛 決勝戦 新记录",
        "⚽",
    ),
    _topic(
        "music",
        "concert album rock tour band song festival jazz orchestra singer guitar choir single premiere piano "
        "violin drummer chorus opera label vinyl ballad quartet encore lyrics melody soundtrack remix folk "
        "composer rehearsal acoustic cello debut trumpet headliner",
        "live new acoustic electric sold-out intimate orchestral debut nocturnal experimental reunited free",
        "announces releases plays records cancels extends performs conducts rehearses dedicates remixes revives",
        "rock, classical, jazz, folk, charts",
        "{person} announces {adjective} {noun} in {place} | Review: {person} and the {adjective} {noun}",
        "音楽祭 摇滚音乐会 新専輯",
        "🎸",
    ),
    _topic(
        "science",
        "study telescope planet researchers gene fossil climate vaccine laboratory comet enzyme brain ocean "
        "particle bacteria species satellite experiment glacier protein neuron asteroid coral antibody crystal "
        "magnet isotope plankton microscope orbit pollen quasar membrane eclipse spectrum sediment",
        "ancient distant microscopic unexpected marine genetic orbital rare promising peer-reviewed cold lunar",
        "discovers measures maps observes explains confirms questions sequences models detects photographs tests",
        "space, biology, physics, medicine, oceans",
        "{adjective} {noun} found near {place} | How the {noun} changed what {person} knew",
        "科学研究 新発見 望远镜",
        "🔭",
    ),
    _topic(
        "politics",
        "election council mayor vote budget minister parliament reform coalition law debate referendum senator "
        "campaign treaty protest ballot opposition committee tax housing transport border inquiry speech "
        "candidate district amendment summit veto petition ombudsman quorum mandate deputy turnout",
        "controversial public narrow emergency unanimous local federal delayed draft bipartisan urgent secret",
        "approves rejects debates proposes delays defends signs criticises postpones supports amends withdraws",
        "elections, city hall, parliament, diplomacy, housing",
        "{place} council {verb} {adjective} {noun} | {person} under pressure over {noun}",
        "選挙結果 市议会 新法案",
        "🗳️",
    ),
    _topic(
        "finance",
        "shares market profit bank inflation merger bond earnings investors rates dividend startup loan revenue "
        "currency forecast exports pension audit credit shareholder futures quarter takeover auction subsidy "
        "payroll insolvency tariff commodity broker mortgage hedge surplus deficit ledger",
        "quarterly record weak strong volatile preliminary annual unexpected steady falling rising cautious",
        "reports raises cuts acquires sells issues forecasts doubles suspends lists refinances restructures",
        "markets, companies, banking, economy, energy",
        "{company} {verb} {adjective} {noun} | {company} and {company2} in talks over {noun}",
        "株価上昇 季度利润 银行利率",
        "📈",
    ),
    _topic(
        "weather",
        "storm rain flood snow heatwave forecast wind temperature frost drought thunder fog warning tide hail "
        "blizzard sunshine pressure humidity avalanche lightning gale drizzle thaw cyclone monsoon visibility "
        "gust barometer rainfall sleet mist dew downpour snowfall cloudburst",
        "heavy severe mild sudden coastal overnight record icy humid stormy dry unseasonal",
        "hits reaches threatens spares floods covers surprises delays closes cools drenches isolates",
        "warnings, forecast, climate, coast, mountains",
        "{adjective} {noun} {verb} {place} | {noun} warning for {place} and {place2}",
        "大雨警报 台風接近 初雪",
        "🌧️",
    ),
    _topic(
        "technology",
        "software phone network chip battery robot privacy browser update satellite cloud security database "
        "drone algorithm sensor laptop outage patch keyboard encryption firmware router compiler quantum "
        "wearable headset processor malware bandwidth prototype interface bluetooth console datacenter modem",
        "open-source wireless secure faulty autonomous encrypted faster foldable experimental modular smart solar",
        "launches updates recalls patches acquires demonstrates leaks encrypts ships discontinues integrates audits",
        "software, gadgets, security, robots, networks",
        "{company} {verb} {adjective} {noun} | Hands on: the {adjective} {noun} from {company}",
        "新手機 人工知能 网络安全",
        "🤖",
    ),
    _topic(
        "culture",
        "exhibition museum theatre novel painting film gallery poet actor festival sculpture director library "
        "manuscript stage screenplay portrait archive ballet curator premiere poetry biography mural photograph "
        "documentary award sketch playwright fresco satire monologue ceramics tapestry essay puppet",
        "acclaimed forgotten contemporary restored controversial immersive baroque independent "
        "award-winning rare lost open-air",
        "opens premieres restores donates directs publishes exhibits translates honours collects adapts unveils",
        "film, books, theatre, museums, design",
        "{place} museum {verb} {adjective} {noun} | {person} on the {adjective} {noun}",
        "美術館 小説新作 电影节",
        "🎭",
    ),
    _topic(
        "travel",
        "airport train hotel island flight beach ferry passport route tourists station cruise trail resort "
        "luggage visa harbour itinerary hostel camping lighthouse railway sleeper excursion lagoon guidebook "
        "terminal canyon village bridge timetable vineyard sailing backpack hiking departure",
        "scenic overnight cheap remote crowded direct coastal charming seasonal nonstop hidden historic",
        "connects reopens welcomes visits cancels expands explores recommends crosses serves delays discovers",
        "rail, islands, hotels, hiking, flights",
        "{adjective} {noun} now links {place} and {place2} | Weekend in {place}: the {adjective} {noun}",
        "夜行列車 海岛旅行 温泉旅館",
        "🚆",
    ),
    _topic(
        "food",
        "restaurant recipe chef bread cheese market harvest coffee kitchen wine soup bakery dessert tomato "
        "mushroom menu spice chocolate vegetables honey noodles brewery olive pastry seafood saffron dumpling "
        "vinegar orchard barista ferment truffle sourdough lentils broth rhubarb",
        "fresh seasonal smoked vegan spicy homemade organic crispy slow-cooked sweet traditional bitter",
        "serves opens bakes tastes pickles harvests roasts recommends brews prepares reinvents awards",
        "restaurants, recipes, wine, markets, baking",
        "{adjective} {noun} at {company} | {person} shares the {adjective} {noun} from {place}",
        "家常料理 新鮮野菜 咖啡馆",
        "🍜",
    ),
    _topic(
        "health",
        "hospital patients doctors therapy nurses clinic sleep vaccine allergy surgery diet exercise flu "
        "medicine ward pharmacy pregnancy stress trial ambulance diabetes screening transplant vitamins "
        "physiotherapy pollen asthma anaesthesia midwife epidemic rehabilitation cardiology dental hearing "
        "bandage fever",
        "free clinical preventive mental chronic routine early shared public gentle surgical overdue",
        "treats recommends warns expands opens studies funds vaccinates monitors reviews prescribes trains",
        "hospitals, nutrition, fitness, research, care",
        "{place} hospital {verb} {adjective} {noun} | What {person} says about {noun}",
        "健康检查 病院改革 疫苗接种",
        "🩺",
    ),
    _topic(
        "education",
        "school students university teachers exam library scholarship classroom campus lecture curriculum "
        "graduates apprenticeship tuition kindergarten professor thesis enrolment literacy mathematics "
        "languages laboratory dormitory semester homework workshop diploma principal seminar faculty tutor "
        "playground textbook alumni vocational debating",
        "public bilingual evening primary rural digital free graduate merged innovative overcrowded technical",
        "teaches enrols funds graduates merges examines mentors publishes restructures welcomes builds evaluates",
        "schools, universities, training, research, languages",
        "{place} {noun} {verb} {adjective} pupils | {person}: why the {adjective} {noun} matters",
        "大学入試 新学期 语言学校",
        "🎓",
    ),
)

HEADLINES: tuple[str, ...] = (
    "{person} {verb} {adjective} {noun} in {place}",
    "{adjective} {noun} surprises {place}",
    "{company} {verb} the {noun} of {place}",
    "{place}: {adjective} {noun} after {number} days",
    "{rare} {verb} {adjective} {noun}",
    "The {noun} of {place} and the {adjective} {noun2}",
    "{person}: “no {noun} without {noun2}”",
    "{number} {noun2} later, {place} still waits for the {noun}",
)

SENTENCES: tuple[str, ...] = (
    "{person} {verb} the {adjective} {noun} that {place} had been waiting for.",
    "The {noun} in {place} looked {adjective} to people close to {company}.",
    "According to {company}, the {adjective} {noun} will last at least {number} days.",
    "Many in {place} remember the {adjective} {noun} of {rare}, and few expected another {noun2}.",
    "A spokesperson for {company} said that the {noun} and the {noun2} are not related.",
    "“We saw the {adjective} {noun},” said {person}, “and then the {noun2} came.”",
    "The {rare} project brings the {adjective} {noun} to {place} for the first time in {number} years.",
    "Some {number} visitors followed the {noun} near {place} on the evening of the {noun2}.",
    "Critics call the {noun} {adjective}; supporters point to {place} and its {noun2}.",
    "It is not clear who will pay for the {noun}, although {company} {verb} the {adjective} {noun2}.",
    "More about the {noun} and the {adjective} {noun2} is expected from {person} tomorrow.",
    "In {place} the {noun} stayed {adjective}, as {rare} and {company} agree.",
)

PAPER_PLACES = _words(
    "City River Harbour Valley Summit Lake Meadow North Coast Garden Bridge Castle Forest Island Market Mill Orchard "
    "Prairie Quarry South Station Tower West Willow"
)
PAPER_KINDS = _words(
    "Herald Gazette Courier Chronicle Post Observer Times Journal Tribune Mirror Ledger Beacon Dispatch Review"
)

_FIRST_NAMES = _words(
    "Mara Ivo Lena Tomas Zoë Jürgen Amara Kenji Nadia Søren Priya Émile Oskar Łucja Hana Diego Freya Omar Núria "
    "Pavel Ines Bruno Yuki Clara Anton Leïla Marek Sofia Tariq Wanda Björn Elif Hugo Noor Petra Ravi"
)
_ONSETS = _words("Vel Mor Tan Bris Lor Sen Dra Quin Bel Tor Nar Fen Cal Hol Ost Pel Rav Sul Wes Zan Gar Kel Mir Tel")
_MIDDLES = _words("a e i o ar en il or um in")
_ENDINGS = _words("wick dale mora tis ford lyn berg nova ster mont vik ria den holm ley gard stan row mere beck")
_BUSINESSES = _words("Works Labs Group Foods Energy Media Partners Systems Motors Holdings")


@cache
def invented_words() -> tuple[str, ...]:
    """Return some thousand invented words in a fixed order, for names of families, places and projects."""
    words = [first + middle + last for first, middle, last in product(_ONSETS, _MIDDLES, _ENDINGS)]
    return tuple(words[index] for index in Dice(1, "invented words").shuffled(len(words)).tolist())


@cache
def people(count: int = 600) -> tuple[str, ...]:
    """Return names of invented people, best known first.

    >>> len(people()) == len(dict.fromkeys(people()))
    True
    """
    families = invented_words()[:count]
    return tuple(f"{_FIRST_NAMES[index % len(_FIRST_NAMES)]} {family}" for index, family in enumerate(families))


@cache
def places(count: int = 300) -> tuple[str, ...]:
    """Return names of invented places, largest first."""
    return invented_words()[1000 : 1000 + count]


@cache
def companies(count: int = 300) -> tuple[str, ...]:
    """Return names of invented companies, largest first."""
    names = invented_words()[1500 : 1500 + count]
    return tuple(f"{name} {_BUSINESSES[index % len(_BUSINESSES)]}" for index, name in enumerate(names))


@cache
def rarities() -> tuple[str, ...]:
    """Return rare invented words for the long tail of the vocabulary, such as names of projects, brands and ships."""
    return invented_words()[2000:]
