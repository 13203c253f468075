"""News with places and languages, and what people ask of it: filters and predicates that cost. All from one seed.

In: a seed and sizes. Out: items, files of regions and places, statements, and every query as its own predicates in
the order in which they are written, for counting what it would ask by itself. Titles and most texts come from
`runnel.testing.news`; a third of the items is in another language than English. Regions, places, phrases and sources
are popular by Zipf's law.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runnel.matching.operators.plugins.contract import Input
from runnel.model.item import Attributes, Item, Value
from runnel.model.operator import Rows
from runnel.testing.dice import Dice
from runnel.testing.news import START, make_items
from runnel.testing.newsroom import make_feeds
from runnel.testing.world_words import TOPICS, places, rarities

SENTENCES: dict[str, str] = {
    "en": """
The striker scored twice before half time. | The coach praised the young team after the match.
The band played old songs until midnight. | The singer will record a new album this winter.
Researchers found water below the frozen plain. | A telescope saw the comet before anybody else.
The council votes on the new budget next week. | The minister has to answer questions in parliament.
Shares fell after the bank lowered its forecast. | The company paid less tax than it had expected.
Heavy rain closed the road along the coast. | Snow is expected in the mountains from tomorrow on.
A fault in the software stopped the network for hours. | The new phone has a battery that lasts for days.
The museum shows paintings that were thought lost. | The film won a prize before anybody had seen it.
The night train runs again from next summer. | The ferry to the island was late because of the fog.
The bakery sells bread made with old kinds of wheat. | The chef serves nothing but vegetables from the garden.
The hospital looks for nurses in other countries. | Doctors advise more sleep and less sugar.
Students protest against the fees of the university. | The school teaches mathematics in two languages.""",
    "de": """
Der Stürmer traf kurz vor der Pause zum zweiten Mal. | Die Mannschaft feierte den Sieg die ganze Nacht.
Die Band spielte ihre alten Lieder bis Mitternacht. | Das Orchester eröffnet die Saison mit einer neuen Sinfonie.
Forscher fanden Wasser unter dem gefrorenen Boden. | Das Teleskop sah den Kometen vor allen anderen.
Der Gemeinderat stimmt nächste Woche über den Haushalt ab. | Die Ministerin muss sich Fragen im Parlament stellen.
Die Aktien fielen, nachdem die Bank ihre Prognose gesenkt hatte. | Die Firma zahlte weniger Steuern als erwartet.
Starker Regen hat die Straße an der Küste gesperrt. | In den Bergen wird ab morgen Schnee erwartet.
Ein Fehler in der Software legte das Netz für Stunden lahm. | Das neue Telefon hat einen Akku, der tagelang hält.
Das Museum zeigt Gemälde, die als verloren galten. | Der Film bekam einen Preis, bevor ihn jemand gesehen hatte.
Der Nachtzug fährt ab dem nächsten Sommer wieder. | Die Fähre zur Insel hatte wegen des Nebels Verspätung.
Die Bäckerei verkauft Brot aus alten Getreidesorten. | Der Koch verwendet nur Gemüse aus dem eigenen Garten.
Das Krankenhaus sucht Pflegekräfte im Ausland. | Ärzte raten zu mehr Schlaf und weniger Zucker.
Studierende protestieren gegen die Gebühren der Universität. | Die Schule lehrt Mathematik in zwei Sprachen.""",
    "fr": """
L'attaquant a marqué deux fois avant la pause. | L'équipe a fêté la victoire jusque tard dans la nuit.
Le groupe a joué ses vieilles chansons jusqu'à minuit. | La chanteuse enregistre un nouvel album cet hiver.
Des chercheurs ont trouvé de l'eau sous le sol gelé. | Le télescope a vu la comète avant tous les autres.
Le conseil vote le nouveau budget la semaine prochaine. | La ministre doit répondre aux questions du parlement.
Les actions ont chuté après les prévisions de la banque. | L'entreprise a payé moins d'impôts que prévu.
De fortes pluies ont fermé la route le long de la côte. | On attend de la neige en montagne dès demain.
Une panne de logiciel a arrêté le réseau pendant des heures. | Le nouveau téléphone a une batterie qui dure des jours.
Le musée montre des tableaux que l'on croyait perdus. | Le film a reçu un prix avant que personne ne l'ait vu.
Le train de nuit circule de nouveau dès l'été prochain. | Le bateau pour l'île était en retard à cause du brouillard.
La boulangerie vend du pain de blés anciens. | Le cuisinier ne sert que des légumes de son jardin.
L'hôpital cherche des infirmières à l'étranger. | Les médecins conseillent plus de sommeil et moins de sucre.
Les étudiants protestent contre les frais de l'université. | L'école enseigne les mathématiques en deux langues.""",
    "es": """
El delantero marcó dos veces antes del descanso. | El equipo celebró la victoria hasta la madrugada.
La banda tocó sus viejas canciones hasta la medianoche. | La cantante graba un nuevo disco este invierno.
Los investigadores encontraron agua bajo el suelo helado. | El telescopio vio el cometa antes que nadie.
El ayuntamiento vota el nuevo presupuesto la próxima semana. | La ministra debe responder a las preguntas.
Las acciones cayeron tras la previsión del banco. | La empresa pagó menos impuestos de lo esperado.
Las fuertes lluvias cerraron la carretera de la costa. | Se espera nieve en las montañas a partir de mañana.
Un fallo del programa detuvo la red durante horas. | El nuevo teléfono tiene una batería que dura varios días.
El museo muestra cuadros que se creían perdidos. | La película ganó un premio antes de que nadie la viera.
El tren nocturno vuelve a circular el próximo verano. | El barco a la isla llegó tarde por culpa de la niebla.
La panadería vende pan de trigos antiguos. | El cocinero sólo sirve verduras de su propia huerta.
El hospital busca enfermeras en otros países. | Los médicos aconsejan dormir más y comer menos azúcar.
Los estudiantes protestan contra las tasas de la universidad. | La escuela enseña matemáticas en dos idiomas.""",
    "it": """
L'attaccante ha segnato due volte prima dell'intervallo. | La squadra ha festeggiato la vittoria fino a tarda notte.
Il gruppo ha suonato le vecchie canzoni fino a mezzanotte. | La cantante registra un nuovo disco quest'inverno.
I ricercatori hanno trovato acqua sotto il suolo gelato. | Il telescopio ha visto la cometa prima di tutti gli altri.
Il consiglio vota il nuovo bilancio la settimana prossima. | La ministra deve rispondere alle domande del parlamento.
Le azioni sono scese dopo le previsioni della banca. | L'azienda ha pagato meno tasse del previsto.
Le forti piogge hanno chiuso la strada lungo la costa. | Da domani è attesa la neve in montagna.
Un guasto del programma ha fermato la rete per ore. | Il nuovo telefono ha una batteria che dura giorni.
Il museo mostra quadri che si credevano perduti. | Il film ha vinto un premio prima che qualcuno lo vedesse.
Il treno notturno torna a viaggiare dalla prossima estate. | Il traghetto per l'isola era in ritardo per la nebbia.
Il forno vende pane di grani antichi. | Il cuoco serve soltanto verdure del suo orto.
L'ospedale cerca infermiere in altri paesi. | I medici consigliano più sonno e meno zucchero.
Gli studenti protestano contro le tasse dell'università. | La scuola insegna la matematica in due lingue.""",
}
"""Sentences about each topic, a line for each in the order of `TOPICS`."""

LANGUAGES = tuple(SENTENCES)
_LANGUAGE_WEIGHTS = (65, 12, 10, 8, 5)
PLACES = 120
_SOUTH, _NORTH, _WEST, _EAST = 36.0, 60.0, -10.0, 30.0
_GEOTAGGED = 0.85
_SOURCES = 40
_PHRASES_OF_TOPIC = 25
_SAME_TOPIC = 0.8
_FEED = "News"

OPERATORS = """
register operator languageOf(?code text, ?confidence number) from 'language' reading title, description
  with (languages 'en, de, fr, es, it', least '0.5');
register operator locIn(region text) from 'region' reading latitude, longitude with (regions 'regions.geojson');
register operator distanceFrom(place text, ?metres number) from 'distance' reading latitude, longitude
  with (places 'places.csv');
register operator semantic(phrase text, ?score number) from 'semantic' reading title, description;
register operator like(field attribute, text text, ?score number) from 'similarity' reading title
  with (measure 'token_set');
"""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A call and a bound for its result: `relation` is empty where the operator has no results."""

    operator: str
    input: str | None = None
    relation: str = ""
    bound: float | str = ""
    negated: bool = False

    def text(self, variable: str) -> str:
        """As it is written in a condition."""
        quoted = [] if self.input is None else [f"'{self.input}'"]
        match self.operator, self.relation:
            case "languageOf", _:
                call = f"languageOf('{self.bound}', ?{variable})"
            case "like", _:
                call = f"like(title, {quoted[0]}, ?{variable}) and ?{variable} {self.relation} {self.bound}"
            case _, "":
                call = f"{self.operator}({', '.join(quoted)})"
            case _:
                call = f"{self.operator}({quoted[0]}, ?{variable}) and ?{variable} {self.relation} {self.bound}"
        return f"not {call}" if self.negated else call

    def inputs(self, attributes: Attributes) -> tuple[Input, ...]:
        """What the operator is given for an item."""
        named = (attributes.get("title", ()),) if self.operator == "like" else ()
        return named if self.input is None else (*named, self.input)

    def holds(self, rows: Rows) -> bool:
        """Whether it holds, by what the operator answered.

        >>> Predicate("semantic", "late match", ">", 0.3).holds(((0.31,),))
        True
        """
        match self.relation:
            case "":
                results = bool(rows)
            case "=":
                results = any(row[0] == self.bound for row in rows)
            case ">":
                results = any(_number(row[0]) > _number(self.bound) for row in rows)
            case _:
                results = any(_number(row[0]) < _number(self.bound) for row in rows)
        return results != self.negated


@dataclass(frozen=True, slots=True)
class Interest:
    """A standing query: a filter, and groups of predicates of which each needs one that holds."""

    number: int
    filter: str
    groups: tuple[tuple[Predicate, ...], ...]

    @property
    def name(self) -> str:
        """The name of its feed."""
        return f"Interest{self.number}"

    def ask_alone(self, ask: Callable[[Predicate], Rows]) -> tuple[bool, list[Predicate]]:
        """Whether it holds for an item that its filter lets through, and what it asked for that, in writing order."""
        asked = []
        for group in self.groups:
            for entry in group:
                asked.append(entry)
                if entry.holds(ask(entry)):
                    break
            else:
                return False, asked
        return True, asked

    def statements(self) -> str:
        """Its declaration, and a subscription to it."""
        parts = []
        for place, group in enumerate(self.groups):
            texts = [entry.text(f"v{place}{at}") for at, entry in enumerate(group)]
            parts.append(texts[0] if len(texts) == 1 else "(" + " or ".join(f"({text})" for text in texts) + ")")
        condition = " and ".join([self.filter, *parts])
        return f"create feed {self.name} from {_FEED} where {condition};\nsubscribe to {self.name} output log;\n"


def region_names() -> tuple[str, ...]:
    """Regions, those asked for most first: countries, the surroundings of places, provinces."""
    countries = [f"country {number}" for number in range(10)]
    around = [f"around {place}" for place in places()[:10]]
    return (*countries, *around, *(f"province {number}" for number in range(40)))


def positions(seed: int) -> list[tuple[float, float]]:
    """Latitude and longitude of every place; the places are in order of popularity."""
    dice = Dice(seed, "positions")
    north, east = dice.uniforms(PLACES), dice.uniforms(PLACES)
    return [
        (round(_SOUTH + (_NORTH - _SOUTH) * up, 4), round(_WEST + (_EAST - _WEST) * right, 4))
        for up, right in zip(north.tolist(), east.tolist(), strict=True)
    ]


def regions_file(seed: int) -> str:
    """GeoJSON: 5 x 8 provinces, 10 countries of four provinces each, and polygons of 32 corners around ten places."""
    high, wide = (_NORTH - _SOUTH) / 5, (_EAST - _WEST) / 8
    rings: dict[str, list[tuple[float, float]]] = {}
    for number in range(40):
        south, west = _SOUTH + high * (number // 8), _WEST + wide * (number % 8)
        rings[f"province {number}"] = _box(south, west, south + high, west + wide)
    for number in range(10):
        south, west = _SOUTH + high * (number // 2), _WEST + 4 * wide * (number % 2)
        rings[f"country {number}"] = _box(south, west, south + high, west + 4 * wide)
    for place, (latitude, longitude) in zip(places()[:10], positions(seed), strict=False):
        turns = [2 * math.pi * corner / 32 for corner in range(32)]
        rings[f"around {place}"] = [(longitude + 3 * math.cos(turn), latitude + 2 * math.sin(turn)) for turn in turns]
    features = [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        }
        for name, ring in rings.items()
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def places_file(seed: int) -> str:
    """The places as CSV."""
    lines = [f"{name},{at[0]},{at[1]}" for name, at in zip(places()[:PLACES], positions(seed), strict=True)]
    return "\n".join(["name,latitude,longitude", *lines, ""])


def phrases(seed: int) -> list[list[str]]:
    """Phrases of a topic's words, such as 'late match, football': for every topic, in order of popularity."""
    dice = Dice(seed, "phrases")
    made = []
    for topic in TOPICS:
        nouns = dice.shuffled(len(topic.nouns))[:_PHRASES_OF_TOPIC].tolist()
        adjectives, sections = (
            dice.below(len(words), len(nouns)).tolist() for words in (topic.adjectives, topic.sections)
        )
        made.append(
            [
                f"{topic.adjectives[adjective]} {topic.nouns[noun]}, {topic.sections[section]}"
                for noun, adjective, section in zip(nouns, adjectives, sections, strict=True)
            ]
        )
    return made


def make_news(seed: int, count: int, first: int = 0, *, week: int = 0) -> Iterator[Item]:
    """Items, numbered from `first`; the same content for the same seed and week, whatever the numbers."""
    dice = Dice(seed, f"news of week {week}")
    spoken = dice.weighted(_LANGUAGE_WEIGHTS, count).tolist()
    where, tagged = dice.ranks(PLACES, count, 0.8).tolist(), dice.chances(_GEOTAGGED, count).tolist()
    sentence = dice.below(2, count * 3).reshape(count, 3).tolist()
    topic_numbers = {topic.name: number for number, topic in enumerate(TOPICS)}
    at = positions(seed)
    for number, item in enumerate(make_items(1_000 * seed + week, make_feeds(seed, _SOURCES), count, 1)):
        own = _sentences(LANGUAGES[spoken[number]], topic_numbers[item.categories[0]])
        chosen = [own[place] for place in sentence[number]]
        place = places()[where[number]]
        english = spoken[number] == 0
        title = item.title if english else f"{place}: {chosen[0]}"
        description = f"{item.description} {chosen[1]}" if english else f"{chosen[1]} {chosen[2]} ({item.author})"
        attributes: dict[str, tuple[Value, ...]] = {
            "title": (title,),
            "description": (description,),
            "source": (item.feed,),
            "category": item.categories,
            "published": (item.published,),
        }
        if tagged[number]:
            attributes |= {"latitude": (at[where[number]][0],), "longitude": (at[where[number]][1],)}
        yield Item(_FEED, str(first + number), attributes)


def make_interests(seed: int, count: int) -> list[Interest]:
    """Standing queries. Two thirds have a filter, a language, a place and a meaning."""
    dice = Dice(seed, "interests")
    topic = dice.ranks(len(TOPICS), count, 0.7).tolist()
    filters = _filters(seed, dice, topic)
    shape = dice.weighted((50, 15, 10, 10, 8, 7), count).tolist()
    meant, more_meant = (_meanings(dice, phrases(seed), topic) for _ in range(2))
    located, more_located = (_locations(dice, count) for _ in range(2))
    near, spoken, titled = _distances(dice, count), _languages(dice, count), _titles(dice, count)
    made = []
    for number in range(count):
        parts: tuple[tuple[Predicate, ...], ...]
        language, region, meaning = (spoken[number],), (located[number],), (meant[number],)
        match shape[number]:
            case 0:
                parts = (language, region, meaning)
            case 1:
                parts = (language, (near[number],), meaning)
            case 2:
                parts = (meaning, (titled[number],))
            case 3:
                parts = (language, (located[number], more_located[number]), meaning)
            case 4:
                parts = (language, (meant[number], more_meant[number]))
            case _:
                parts = ((Predicate("languageOf", None, "=", "en", negated=True),), region, meaning)
        made.append(Interest(number, filters[number], parts))
    return made


def script(interests: Sequence[Interest]) -> str:
    """All statements."""
    return f"register feed {_FEED};\n{OPERATORS}" + "".join(interest.statements() for interest in interests)


def _number(value: Value) -> float:
    return value if isinstance(value, float) else math.nan


def _box(south: float, west: float, north: float, east: float) -> list[tuple[float, float]]:
    return [(west, south), (east, south), (east, north), (west, north)]


def _sentences(language: str, topic: int) -> list[str]:
    return SENTENCES[language].strip().split("\n")[topic].split(" | ")


def _filters(seed: int, dice: Dice, topic: Sequence[int]) -> list[str]:
    """A category, a word or a source, some with a date; a few have a date alone."""
    count = len(topic)
    sources = [feed.name for feed in make_feeds(seed, _SOURCES)]
    kind, dated = dice.weighted((30, 45, 20, 5), count).tolist(), dice.chances(0.2, count).tolist()
    noun = dice.ranks(30, count, 0.8).tolist()
    source, day = dice.ranks(len(sources), count, 0.6).tolist(), dice.below(6, count).tolist()
    results = []
    for number in range(count):
        moment = (START + timedelta(days=1 + day[number])).strftime("%Y-%m-%d")
        date = f"published > '{moment}'"
        filters = (
            f"category = '{TOPICS[topic[number]].name}'",
            f"description contains '{TOPICS[topic[number]].nouns[noun[number]]}'",
            f"source = '{sources[source[number]]}'",
        )
        own = date if kind[number] == 3 else filters[kind[number]]
        results.append(f"{own} and {date}" if dated[number] and own != date else own)
    return results


def _meanings(dice: Dice, known: Sequence[Sequence[str]], topics: Sequence[int]) -> list[Predicate]:
    """Mostly a phrase of the topic that the filter is about, by Zipf's law; five bounds."""
    count = len(topics)
    same, other = dice.chances(_SAME_TOPIC, count).tolist(), dice.below(len(TOPICS), count).tolist()
    phrase, bound = dice.ranks(_PHRASES_OF_TOPIC, count).tolist(), dice.below(5, count).tolist()
    chosen = [topic if keeps else stray for topic, keeps, stray in zip(topics, same, other, strict=True)]
    return [
        Predicate("semantic", known[topic][value], ">", round(0.2 + 0.05 * step, 2))
        for topic, value, step in zip(chosen, phrase, bound, strict=True)
    ]


def _locations(dice: Dice, count: int) -> list[Predicate]:
    names = region_names()
    return [Predicate("locIn", names[rank]) for rank in dice.ranks(len(names), count).tolist()]


def _distances(dice: Dice, count: int) -> list[Predicate]:
    place, reach = dice.ranks(PLACES, count).tolist(), dice.below(5, count).tolist()
    metres = (100_000.0, 200_000.0, 400_000.0, 600_000.0, 1_000_000.0)
    return [
        Predicate("distanceFrom", places()[value], "<", metres[step])
        for value, step in zip(place, reach, strict=True)
    ]


def _languages(dice: Dice, count: int) -> list[Predicate]:
    chosen = dice.weighted(_LANGUAGE_WEIGHTS, count).tolist()
    return [Predicate("languageOf", None, "=", LANGUAGES[value]) for value in chosen]


def _titles(dice: Dice, count: int) -> list[Predicate]:
    """Titles with a rare name, as somebody half remembers them."""
    rare, topic = dice.ranks(200, count).tolist(), dice.ranks(len(TOPICS), count, 0.7).tolist()
    step = dice.below(3, count).tolist()
    return [
        Predicate("like", f"{rarities()[value]} {TOPICS[which].nouns[0]}", ">", round(0.4 + 0.1 * at, 1))
        for value, which, at in zip(rare, topic, step, strict=True)
    ]
