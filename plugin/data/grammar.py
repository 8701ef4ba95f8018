"""The built-in corpus: English-like text from a seeded grammar, in which prediction needs memory.

A text is a sequence of paragraphs. In each

    anna spoke of the sea :  ... sentences ...  so spoke anna . <eos>

- the name of the speaker is repeated at the end, with `he` or `she` in between;
- the topic (`sea`) decides most of the nouns;
- a sentence may open with `if`, `although`, ...; each is followed by its own partner (`then`, `yet`, ...) after
  one or more clauses, and such pairs nest;
- a verb agrees in number with its subject, across modifiers that contain other nouns and verbs:
  the boats near the island that the sailor sees hide the anchor .

Modifiers, clauses and sentences have power-law tails: after j of them there is one more with
probability (j + a) / (j + a + b), so P(more than n) falls like n^-b.

The only randomness is the choice of each next word from a table of words and probabilities, in which no word
occurs twice. So p(word | all before) is known exactly, and on average no model has a perplexity below exp(mean
of -log p).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..common.lazy import np
from ..common.rng import check_seed, uniforms

TOPICS = {
    "sea": "boat/boats sailor/sailors wave/waves island/islands anchor/anchors gull/gulls",
    "farm": "cow/cows farmer/farmers field/fields barn/barns horse/horses fence/fences",
    "city": "street/streets tower/towers driver/drivers bridge/bridges shop/shops clerk/clerks",
    "forest": "tree/trees hunter/hunters fox/foxes path/paths owl/owls cabin/cabins",
    "castle": "king/kings guard/guards gate/gates knight/knights banner/banners hall/halls",
    "school": "pupil/pupils teacher/teachers book/books desk/desks lesson/lessons window/windows",
    "kitchen": "cook/cooks pot/pots table/tables oven/ovens spoon/spoons guest/guests",
    "sky": "star/stars cloud/clouds pilot/pilots plane/planes bird/birds planet/planets",
}
COMMON = "child/children stranger/strangers dog/dogs neighbour/neighbours"
VERBS = """sees/see follows/follow helps/help finds/find likes/like fears/fear watches/watch
hears/hear knows/know meets/meet seeks/seek calls/call greets/greet paints/paint hides/hide"""
PAIRS = """if/then although/yet because/therefore when/suddenly unless/otherwise while/meanwhile
since/hence once/afterwards"""
SPEAKERS = {"she": "anna clara emma julia maria rosa", "he": "adam david henry oscar peter simon"}
ADJECTIVES = "old young small tall quiet bright strange gentle"
PREPOSITIONS = "near behind beside above below with"
OTHERS = "the that and said spoke of so , . : <eos>"

TOPIC_SHARE, ADJECTIVE_SHARE = 0.85, 0.25  # nouns of the topic; adjectives before a noun
OPENER_SHARE, PRONOUN_SHARE = 0.35, 0.2  # sentences with an opener; with a pronoun
NESTED_SHARE = 0.15  # of pairs among the clauses inside a pair
COMPOUND_SHARE = 0.15  # of plain clauses followed by `and`
THAT_SHARE, OBJECT_SHARE = 0.5, 0.4  # modifiers with `that`; of those, with a new subject
MODIFIERS, CLAUSES, SENTENCES = (1.0, 2.5), (0.8, 2.2), (8.0, 3.0)  # a, b of the power-law tails
MAX_DEPTH, MAX_PAIRS = 2, 2  # clauses inside noun phrases, pairs inside pairs


def _split(text: str) -> list[tuple[str, ...]]:
    return [tuple(item.split("/")) for item in text.split()]


def vocabulary() -> list[str]:
    """All words, grouped by kind. The id of a word is its position."""
    forms = " ".join([COMMON, *TOPICS.values(), VERBS, PAIRS]).replace("/", " ")
    kinds = [OTHERS, forms, *TOPICS, *SPEAKERS, *SPEAKERS.values(), ADJECTIVES, PREPOSITIONS]
    return " ".join(kinds).split()


@dataclass(frozen=True)
class Text:
    """A split: for each word its id (int64), the distance back to the word that determines it (int32, 0 if
    there is none), and its -log p given all words before (float64)."""

    tokens: np.ndarray
    distance: np.ndarray
    nats: np.ndarray

    @property
    def floor(self) -> float:
        """The perplexity of the grammar itself on this text."""
        return math.exp(float(self.nats.mean()))


class GrammarCorpus(NamedTuple):
    """The splits, and the word of each id."""

    train: Text
    valid: Text
    test: Text
    vocabulary: list[str]


def grammar_corpus(
    seed: int = 1, train: int = 300_000, valid: int = 30_000, test: int = 30_000
) -> GrammarCorpus:
    """Generates splits with the given numbers of words, each from its own stream of random numbers."""
    texts = []
    ids = {word: i for i, word in enumerate(vocabulary())}
    for split, size in (("train", train), ("valid", valid), ("test", test)):
        if size < 1:
            raise ValueError(f"{split} is {size!r} words; accepted: 1 or more")
        writer = _Writer(check_seed(seed), split)
        while len(writer.written) < size:
            writer.paragraph()
        words, distance, nats = zip(*writer.written[:size], strict=True)
        tokens = np.array([ids[word] for word in words], dtype=np.int64)
        texts.append(Text(tokens, np.array(distance, dtype=np.int32), np.array(nats)))
    return GrammarCorpus(texts[0], texts[1], texts[2], list(ids))


def ngram_perplexity(train: np.ndarray, text: np.ndarray, vocab_size: int) -> tuple[float, float]:
    """Perplexity of unigram and bigram models, estimated on `train`, on `text` without its first word.

    p(w) = (n(w) + 1) / (N + V);  p(w|v) = (max(n(vw) - 3/4, 0) + 3/4 n+(v) p(w)) / n(v), where n+(v) is the
    number of different words after v (absolute discounting). After a v that was never seen, p(w|v) = p(w).
    """
    V = vocab_size
    unigram = (np.bincount(train, minlength=V) + 1) / (len(train) + V)
    n = np.bincount(train[:-1] * V + train[1:], minlength=V * V).reshape(V, V)
    v, w = text[:-1], text[1:]
    seen, p = n.sum(1)[v], unigram[w]
    discounted = np.maximum(n[v, w] - 0.75, 0) + 0.75 * (n > 0).sum(1)[v] * p
    bigram = np.where(seen > 0, discounted / np.maximum(seen, 1), p)
    return math.exp(-np.log(p).mean()), math.exp(-np.log(bigram).mean())


class _Table:
    """Words with their probabilities. Every word occurs once."""

    def __init__(self, shares: dict[str, float]) -> None:
        self.words = list(shares)
        values = np.array(list(shares.values()))
        if abs(values.sum() - 1) > 1e-12 or not (values > 0).all():
            raise ValueError(f"shares are {values.tolist()}; accepted: above 0, adding up to 1")
        self.ends = np.cumsum(values)[:-1].tolist()
        self.nats = (-np.log(values)).tolist()


def _even(words: list[str], share: float) -> dict[str, float]:
    return {word: share / len(words) for word in words}


def _more(j: int, tail: tuple[float, float]) -> float:
    return (j + tail[0]) / (j + sum(tail))


@cache
def _only(word: str) -> _Table:
    return _Table({word: 1.0})


@cache
def _noun(topic: str) -> _Table:
    """After `the`: an adjective, or a singular or plural noun."""
    shares = _even(ADJECTIVES.split(), ADJECTIVE_SHARE)
    for text, share in ((TOPICS[topic], TOPIC_SHARE), (COMMON, 1 - TOPIC_SHARE)):
        forms = [form for pair in _split(text) for form in pair]
        shares |= _even(forms, share * (1 - ADJECTIVE_SHARE))
    return _Table(shares)


@cache
def _after_subject(plural: bool, j: int) -> _Table:
    """After a subject with j modifiers: one more, or its verb."""
    more = _more(j, MODIFIERS)
    shares = _even(PREPOSITIONS.split(), more * (1 - THAT_SHARE))
    return _Table(shares | {"that": more * THAT_SHARE} | _even(_VERB_FORMS[plural], 1 - more))


@cache
def _after_that(plural: bool, deepest: bool) -> _Table:
    """After `that`: a verb whose subject is the noun before it, or the subject of a clause about that noun."""
    clause = {} if deepest else {"the": OBJECT_SHARE}
    return _Table(clause | _even(_VERB_FORMS[plural], 1 - sum(clause.values())))


@cache
def _sentence_start(j: int, pronoun: str) -> _Table:
    """After j sentences: one more, or the paragraph's end."""
    end = {"so": 1 - _more(j, SENTENCES)} if j else {}
    more = 1 - sum(end.values())
    shares = {"the": more * (1 - OPENER_SHARE - PRONOUN_SHARE), pronoun: more * PRONOUN_SHARE}
    return _Table(end | shares | _even(list(_PARTNER), more * OPENER_SHARE))


@cache
def _and_or(word: str, more: float) -> _Table:
    return _Table({"and": more, word: 1 - more})


_PLURALS = frozenset(forms[1] for text in (COMMON, *TOPICS.values()) for forms in _split(text))
_VERB_FORMS = [[forms[i] for forms in _split(VERBS)] for i in range(2)]  # singular, plural
_VERBS = frozenset(_VERB_FORMS[0] + _VERB_FORMS[1])
_PARTNER = {opener: partner for opener, partner in _split(PAIRS)}
_PRONOUN = {name: pronoun for pronoun, text in SPEAKERS.items() for name in text.split()}
_ADJECTIVES = frozenset(ADJECTIVES.split())
_SPEAKERS = _Table(_even(list(_PRONOUN), 1.0))
_TOPICS = _Table(_even(list(TOPICS), 1.0))
_QUOTED = _Table({"the": 1 - OPENER_SHARE} | _even(list(_PARTNER), OPENER_SHARE))
_NESTED = _Table({"the": 1 - NESTED_SHARE} | _even(list(_PARTNER), NESTED_SHARE))


class _Writer:
    """Writes word by word; `say` is the only place that draws random numbers."""

    def __init__(self, seed: int, split: str) -> None:
        self.written: list[tuple[str, int, float]] = []  # word, distance, -log p
        self.at, self.topic = -1, ""  # position of the last word; the paragraph's topic
        self._key = (seed, f"grammar-{split}")
        self._draws: list[float] = []
        self._blocks = 0

    def say(self, table: _Table, since: int = 0, decided: frozenset[str] | None = None) -> str:
        """Writes a word of the table. If it is one of `decided`, the word at position `since` determined it."""
        if not self._draws:
            self._draws = uniforms(65_536, *self._key, index=self._blocks).tolist()
            self._blocks += 1
        choice = bisect_right(table.ends, self._draws.pop())
        word = table.words[choice]
        self.at = len(self.written)
        distance = self.at - since if decided and word in decided else 0
        self.written.append((word, distance, table.nats[choice]))
        return word

    def recite(self, text: str) -> None:
        """Writes words that follow with certainty."""
        for word in text.split():
            self.say(_only(word))

    def paragraph(self) -> None:
        """Writes a heading, sentences, and an end that repeats the speaker."""
        name = self.say(_SPEAKERS)
        pronoun, named_at = _PRONOUN[name], self.at
        gender_at, sentences = named_at, 0
        self.recite("spoke of the")
        self.topic = self.say(_TOPICS)
        self.recite(":")
        told = frozenset([pronoun])
        while (word := self.say(_sentence_start(sentences, pronoun), gender_at, told)) != "so":
            if word == pronoun:
                gender_at = self.at
                self.recite("said that")
                word = self.say(_QUOTED)
            if word == "the":
                self.clause()
                while self.say(_and_or(".", COMPOUND_SHARE)) == "and":
                    self.recite("the")
                    self.clause()
            else:
                self.pair(word, 1)
                self.recite(".")
            sentences += 1
        self.recite("spoke")
        self.say(_only(name), named_at, frozenset([name]))
        self.recite(". <eos>")

    def pair(self, opener: str, depth: int) -> None:
        """Continues after the opener: clause (, and clause)* , partner clause."""
        opened_at, partner, clauses, word = self.at, _PARTNER[opener], 0, ""
        while word != partner:
            word = self.say(_NESTED if depth < MAX_PAIRS else _only("the"))
            if word == "the":
                self.clause()
            else:
                self.pair(word, depth + 1)
            self.recite(",")
            table = _and_or(partner, _more(clauses, CLAUSES))
            word = self.say(table, opened_at, frozenset([partner]))
            clauses += 1
        self.recite("the")
        self.clause()

    def clause(self) -> None:
        """Continues after `the`: subject, verb and object."""
        self.subject_and_verb(0)
        self.recite("the")
        self.noun()

    def subject_and_verb(self, depth: int) -> None:
        """Continues after `the`: noun, modifiers and the verb that agrees with the noun."""
        plural, at, j = self.noun(), self.at, 0
        while (word := self.say(_after_subject(plural, j), at, _VERBS)) not in _VERBS:
            j += 1
            if word == "that":
                table = _after_that(plural, depth == MAX_DEPTH)
                if self.say(table, at, _VERBS) == "the":
                    self.subject_and_verb(depth + 1)
                    continue
            self.recite("the")
            self.noun()

    def noun(self) -> bool:
        """Writes the rest of a noun phrase; returns whether it is plural."""
        while (word := self.say(_noun(self.topic))) in _ADJECTIVES:
            pass
        return word in _PLURALS
