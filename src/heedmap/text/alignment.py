"""The alignment of two prompts: their words, their tokens, and the purpose of the edit.

Colours, sizes, places and phrases are those of English.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise, product, zip_longest
from operator import itemgetter
from typing import Any, Literal, TypeVar, get_args

from heedmap.checks import check_one_of, check_text
from heedmap.errors import ArgumentError, join_words, quoted
from heedmap.options import EditKind, EditPurpose
from heedmap.text.axis import separate
from heedmap.text.prompts import (
    CONNECTIVES,
    fold,
    is_content,
    plurals,
    word_keys,
    word_set,
)
from heedmap.text.words import TokenTable, Word

_Pair = tuple[Word | None, Word | None]
_Pairs = list[_Pair]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """The word of the target for each word of the source.

    Attributes:
        pairs: (source word or None, target word or None), in reading order; every word of both
            prompts is in one pair, with those past the limit. None on the left: the word was added;
            None on the right: it was dropped.
        changes: those of the pairs that are not the same word, apart from case, Unicode form and
            punctuation.
        kind: "replace" if every word has its partner, "refine" if words were added or dropped; or
            the kind that was asked for.
        why: a clause about the change and its consequence for the attention.
        guesses: the pairs of different words for which other words could have been chosen.
    """

    pairs: tuple[_Pair, ...]
    changes: tuple[_Pair, ...]
    kind: EditKind
    why: str
    guesses: tuple[tuple[Word, Word], ...] = ()

    @property
    def unread(self) -> tuple[Word, ...]:
        """The changed words without a token that the model reads: their edit would be lost."""
        return tuple(
            word for pair in self.changes for word in pair if word and not word.tokens
        )


# --- words --------------------------------------------------------------------------------------

# Stands for another determiner: in "an orange cat" -> "a cat" the "an" became "a", not "orange".
_DETERMINER = re.compile(
    "a|an|the|this|that|these|those|some|my|your|his|her|its|our|their|"
    "one|two|three|four|five|six|seven|eight|nine|ten|[0-9]+"
)
# Ends a noun phrase, after its noun: "a giraffe playing chess", "a castle covered in snow".
_PARTICIPLE = re.compile(
    "(?!(?:building|ceiling|clothing|drawing|evening|king|lighting|lightning|morning|painting|"
    "ring|spring|string|thing|viking|wedding|wing)$)(?:.{2,}ing|.{2,}[^e]ed|made)"
)
_BEFORE_NOUN = re.compile(
    f"{'|'.join(CONNECTIVES)}|{_DETERMINER.pattern}|big|black|blue|cute|dark|green|grey|happy|"
    "large|little|old|pink|pretty|purple|red|small|tall|tiny|white|yellow|young|"
    ".*(?:ful|ish|less|ous)"
)
# "a lake" -> "a painting of a mountain": the lake became the mountain.
_MEDIUM = re.compile(
    "close-up|drawing|engraving|illustration|image|painting|photo|photograph|picture|portrait|"
    "poster|render|rendering|sculpture|sketch|statue|watercolou?r"
)


def pair_words(
    source: TokenTable, target: TokenTable, kind: EditKind | None = None
) -> WordAlignment:
    """Align the words of two prompts, and choose between Replace and Refine if `kind` is None.

    Words are compared without regard to case, Unicode form and punctuation. The alignment has the
    fewest changes (Levenshtein: a swap, an addition and a drop cost one each), and then keeps the
    most words; here an article or number equals any other, and a noun its plural. Between two words
    that stayed, equally many words are paired in order. Otherwise they are paired phrase by phrase,
    from the last words backwards: "a cat" -> "a big dog on the grass" makes a dog of the cat and
    adds the other words. A comma, a preposition, "and" or a participle begins a phrase.

    "replace" pairs the words in order, and is chosen if every word has its partner; with "refine"
    tokens without a partner keep their own attention. ArgumentError if "replace" is asked of
    different numbers of words, or the prompts are too long to be aligned.
    """
    if kind is not None:
        check_one_of("kind", kind, get_args(EditKind))
    guesses: list[tuple[Word, Word]] = []
    if kind != "replace":
        pairs, guesses = _paired(source, target)
    elif len(source.words) == len(target.words):
        pairs = list(zip(source.words, target.words, strict=True))
    else:
        raise ArgumentError(
            f"kind='replace' needs as many words in both prompts ({len(source.words)} and "
            f"{len(target.words)} here): use 'refine'"
        )
    changes = [(a, b) for a, b in pairs if not (a and b and _key(a) == _key(b))]
    # New punctuation keeps its own attention.
    ids = [[token.id for token in table.tokens] for table in (source, target)]
    punctuation = not changes and ids[0] != ids[1]
    if kind is None:
        kind = (
            "replace"
            if all(a and b for a, b in pairs) and not punctuation
            else "refine"
        )
    why = _why(changes, kind, punctuation)
    return WordAlignment(tuple(pairs), tuple(changes), kind, why, tuple(guesses))


def _paired(
    source: TokenTable, target: TokenTable
) -> tuple[_Pairs, list[tuple[Word, Word]]]:
    """Pair the words of two prompts; return the pairs, and those among them that are a guess."""
    nouns = {
        many: fold(word.text)
        for word in (*source.words, *target.words)
        for many in plurals(fold(word.text))
    }

    def key(word: Word) -> str:
        text = " ".join(_key(word))
        return "a" if _DETERMINER.fullmatch(text) else nouns.get(text, text)

    keys = [*map(key, source.words)], [*map(key, target.words)]
    pairs: _Pairs = []
    guesses: list[tuple[Word, Word]] = []
    anchors = best_matches(*keys, match=0, swap=-1, gap=-1)
    for a, b, match in _between(anchors, source.words, target.words):
        if len(a) == len(b):
            pairs += zip(a, b, strict=True)
        else:
            changed = _changed(_phrases(a, source.prompt), _phrases(b, target.prompt))
            guesses += [
                (x, y) for x, y in changed if x and y and min(len(a), len(b)) > 1
            ]
            pairs += changed
        pairs += match
    return pairs, guesses


_Phrase = tuple[str, list[Word]]


def _changed(source: Sequence[_Phrase], target: Sequence[_Phrase]) -> _Pairs:
    """Pair the words of phrases that begin alike; all others were dropped or added."""
    kinds = [kind for kind, _ in source], [kind for kind, _ in target]
    matches = best_matches(*kinds, match=1, swap=-1, gap=0)
    pairs: _Pairs = []
    for dropped, added, match in _between(matches, source, target):
        pairs += [(word, None) for _, words in dropped for word in words]
        pairs += [(None, word) for _, words in added for word in words]
        for (kind, a), (_, b) in match:
            if kind not in ("", ","):
                pairs.append((a.pop(0), b.pop(0)))
            if (
                a
                and b
                and all(_DETERMINER.fullmatch(fold(words[0].text)) for words in (a, b))
            ):
                pairs.append((a.pop(0), b.pop(0)))
            pairs += reversed([*zip_longest(reversed(a), reversed(b))])
    return pairs


def _between(
    matches: Sequence[tuple[int, int]], a: Sequence[_Item], b: Sequence[_Item]
) -> Iterator[tuple[Sequence[_Item], Sequence[_Item], list[tuple[_Item, _Item]]]]:
    """Yield the items of two sequences before each match, with the match, and those after all."""
    for (i, j), (next_i, next_j) in pairwise([(-1, -1), *matches, (len(a), len(b))]):
        match = [(a[next_i], b[next_j])] if next_i < len(a) else []
        yield a[i + 1 : next_i], b[j + 1 : next_j], match


def _phrases(words: Sequence[Word], prompt: str) -> list[_Phrase]:
    """Cut words into phrases, each with the kind of its first word; the first may be empty."""
    phrases: list[_Phrase] = [("", [])]
    for word in words:
        text, (kind, before) = fold(word.text), phrases[-1]
        last = fold(before[-1].text) if before else ""
        if text == "of" and kind in ("", ",") and _MEDIUM.fullmatch(last):
            before.append(word)
            phrases[-1:] = [("of", before), (kind, [])]
            continue
        if not set(",;.|").isdisjoint(prompt[max(0, word.start - 2) : word.start]):
            phrases.append((",", []))
        elif text in CONNECTIVES:
            phrases.append((text if text in ("and", "with") else "in", []))
        elif last and _PARTICIPLE.fullmatch(text) and not _BEFORE_NOUN.fullmatch(last):
            phrases.append(("ing", []))
        phrases[-1][1].append(word)
    return phrases


def _key(word: Word) -> tuple[str, ...]:
    return word_keys(word.text) or (fold(word.text),)


def _why(changes: _Pairs, kind: EditKind, punctuation: bool) -> str:
    swaps = [f"{quoted(a.text)} became {quoted(b.text)}" for a, b in changes if a and b]
    clauses = [join_words(swaps)] if swaps else []
    for words, change in (
        ([b for a, b in changes if b and not a], "added"),
        ([a for a, b in changes if a and not b], "dropped"),
    ):
        if words:
            names = join_words([quoted(word.text) for word in words])
            clauses.append(f"{names} {'was' if len(words) == 1 else 'were'} {change}")
    if not clauses:
        clauses = [
            "only punctuation differs" if punctuation else "all words are the same"
        ]
    effect = "unchanged words take the source's attention and new words keep their own"
    effect = "attention is replaced word by word" if kind == "replace" else effect
    return f"{'; '.join(clauses)}, so {effect}"


# --- the swaps that a user writes ---------------------------------------------------------------

_ARROW = re.compile("->|→")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")  # not that of a number


def swap_of(text: str) -> tuple[tuple[str, str], ...]:
    """Read "cat->dog, red→blue" as (source word, target word) pairs; a word may be a phrase."""
    swaps: list[tuple[str, str]] = []
    for part in _COMMA.split(check_text("the swap", text, "cat->dog")):
        sides = [side.strip() for side in _ARROW.split(part)]
        if len(sides) != 2 or not all(map(word_keys, sides)):
            raise ArgumentError(
                f"only is {quoted(part.strip())}: expected pairs such as 'cat->dog', separated by "
                "commas"
            )
        swaps.append((sides[0], sides[1]))
    return tuple(swaps)


# --- tokens -------------------------------------------------------------------------------------


def token_shares(
    source: TokenTable, target: TokenTable, alignment: WordAlignment
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of an edit, as its entries that are not 0.

    The target's token n takes the share of the attention to the source's token w, for each entry
    `(w, n, share)`. Encoders that stand one after another on the K axis are aligned each by itself.
    """
    entries: list[tuple[int, int, float]] = []
    first_w = first_n = 0
    for before, after in zip(separate(source), separate(target), strict=True):
        if alignment.kind == "replace":
            part = replacement(before, after, _of_encoder(alignment, before, after))
        else:
            partners = enumerate(refinement(before, after))
            part = [(w, n, 1.0) for n, w in partners if w is not None]
        entries += [(first_w + w, first_n + n, share) for w, n, share in part]
        first_w, first_n = first_w + len(before.tokens), first_n + len(after.tokens)
    return entries


def _of_encoder(
    alignment: WordAlignment, before: TokenTable, after: TokenTable
) -> WordAlignment:
    """Return an alignment with the words as one encoder's tables have them."""

    def words(pairs: Sequence[_Pair]) -> tuple[_Pair, ...]:
        return tuple(
            (a and before.words[a.number], b and after.words[b.number])
            for a, b in pairs
        )

    return replace(
        alignment, pairs=words(alignment.pairs), changes=words(alignment.changes)
    )


def replacement(
    source: TokenTable, target: TokenTable, alignment: WordAlignment
) -> list[tuple[int, int, float]]:
    """Return the matrix M `[K source, K target]` of Replace, as its entries that are not 0.

    `R[p, n] = Σ_w P_source[p, w] · M[w, n]` gives the target's tokens the source's attention
    (Hertz et al. 2022). Every row of M sums to 1, so R holds as much attention as P. An entry is
    `(w, n, share)`, in ascending order.

    - A word maps token to token to a partner of as many tokens, as in the published code; to
      another one of b tokens, each of its tokens has `M[w, n] = 1/b`. A word that stayed maps token
      to token (if the limit cut it, its surplus maps to the last one read).
    - Punctuation between the same two words maps to equal punctuation in order, then the unequal
      ones among them in order, the surplus to the last.
    - The start maps to the start, the end to the end, the j-th padding token to the j-th, and
      surplus padding to the target's last padding token, or else to its end.
    - Any other token maps where the next token maps that has a place. New punctuation gets nothing.

    The words after a swap keep their own source word, also if the swap changes the number of
    tokens; the published code gives them the attention of their neighbours.
    """
    last = target.positions("end")[-1:]
    targets: dict[int, tuple[int, ...]] = {}  # by position of the source
    for kind in ("start", "end", "pad"):
        after = target.positions(kind) or (last if kind == "pad" else ())
        targets |= _in_order(source.positions(kind), after)
    for pair in alignment.pairs:
        before, after = (word.tokens if word else () for word in pair)
        short = min(len(before), len(after))
        ids = _ids(source, before[:short]), _ids(target, after[:short])
        stayed = pair not in alignment.changes and ids[0] == ids[1]
        if stayed or len(before) == len(after):
            targets |= _in_order(before, after)
        elif after:
            targets |= dict.fromkeys(before, after)
    for before, after in zip(_punctuation(source), _punctuation(target), strict=True):
        anchors = best_matches(
            _ids(source, before), _ids(target, after), match=1, swap=-1, gap=0
        )
        for a, b, match in _between(anchors, before, after):
            targets |= _in_order(a, b)
            targets |= {w: (n,) for w, n in match}

    last = last or (len(target.tokens) - 1,)
    entries: list[tuple[int, int, float]] = []
    for w in reversed(range(len(source.tokens))):
        last = targets.get(w, last)
        entries += [(w, n, 1 / len(last)) for n in reversed(last)]
    return entries[::-1]


def refinement(source: TokenTable, target: TokenTable) -> list[int | None]:
    """Return for each target position the source position whose column it takes, None for its own.

    The text tokens are aligned by their ids (Needleman and Wunsch, with gap 0, match 1 and mismatch
    -1), as in prompt-to-prompt (Hertz et al. 2022), and `best_matches` prefers whole words. The
    start takes the start's column, the end the end's, the j-th padding token the j-th's; additional
    padding keeps its own. The positions ascend.
    """
    columns: list[int | None] = [None] * len(target.tokens)
    for kind in ("start", "end", "pad"):
        for w, n in zip(source.positions(kind), target.positions(kind), strict=False):
            columns[n] = w
    before, after = source.positions(), target.positions()
    ids, sizes = (
        (_ids(source, before), _ids(target, after)),
        (_sizes(source), _sizes(target)),
    )
    for i, j in best_matches(*ids, *sizes, match=1, swap=-1, gap=0):
        columns[after[j]] = before[i]
    return columns


def _in_order(
    before: Sequence[int], after: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Map the k-th to the k-th, and the surplus to the last; nothing if there is nothing."""
    return {w: (after[min(k, len(after) - 1)],) for k, w in enumerate(before) if after}


def _ids(table: TokenTable, positions: Sequence[int]) -> list[int]:
    return [table.tokens[position].id for position in positions]


def _owners(table: TokenTable) -> dict[int, int]:
    return {p: number for number, word in enumerate(table.words) for p in word.tokens}


def _sizes(table: TokenTable) -> list[int]:
    """Return the numbers of text tokens of one word in a row; punctuation stands alone."""
    owners = _owners(table)
    units = groupby(table.positions(), key=lambda p: owners.get(p, -1 - p))
    return [len(list(unit)) for _, unit in units]


def _punctuation(table: TokenTable) -> list[list[int]]:
    """Return the text tokens of no word: those before the first word, those after it, and so on."""
    owners, place = _owners(table), 0
    groups: list[list[int]] = [[] for _ in range(len(table.words) + 1)]
    for position in table.positions():
        if position in owners:
            place = max(place, owners[position] + 1)
        else:
            groups[place].append(position)
    return groups


# --- sequences ----------------------------------------------------------------------------------

MAX_TABLE = 500_000  # cells of the dynamic program: about a second


def best_matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_sizes: Sequence[int] = (),
    b_sizes: Sequence[int] = (),
    *,
    match: int,
    swap: int,
    gap: int,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970), with scores of equal pairs, unequal pairs
    and items without a partner. Among alignments of the same score the best has the most items in
    units (such as words, of `a_sizes` and `b_sizes` items) that were matched whole, then the fewest
    seams (a match after an item without one; so surplus goes to the end), then its surplus as early
    as possible: the words before a noun stay with the noun.
    """
    if len(a) * len(b) > MAX_TABLE:
        raise ArgumentError(
            f"the prompts are too long to be aligned: {len(a)} and {len(b)} words or tokens; make "
            "both shorter"
        )
    # One integer orders the alignments: score, then items in whole units, then seams.
    unit = len(a) + len(b) + 2
    match, swap, gap = match * unit**2, swap * unit**2, gap * unit**2
    units = [
        dict(zip(accumulate(sizes), sizes, strict=True))
        for sizes in (a_sizes or [1] * len(a), b_sizes or [1] * len(b))
    ]
    # The best alignments of the first i items with the first j, as (value, matches): the one that
    # ends with a match, and the best other. Matches are linked lists (earlier, i, j, length).
    never = (-(unit**4), None)
    best: dict[tuple[int, int], tuple[tuple[int, Any], tuple[int, Any]]] = {}

    def extend(i: int, j: int, score: int, seam: int = 0) -> tuple[int, Any]:
        (value, matches), (other, others) = best.get((i, j), (never, never))
        return (
            (value + score, matches)
            if value >= other - seam
            else (other - seam + score, others)
        )

    for i, j in product(range(len(a) + 1), range(len(b) + 1)):
        moves = [
            extend(i - 1, j - 1, swap),
            extend(i, j - 1, gap),
            extend(i - 1, j, gap),
        ]
        unmatched, matched = max(moves, key=itemgetter(0)), never
        if i and j and a[i - 1] == b[j - 1]:
            size = units[0].get(i, 0)
            is_unit = size == units[1].get(j) and a[i - size : i] == b[j - size : j]
            lengths = [(size, size * (match + unit))] * is_unit + [(1, match)]
            ends = [(extend(i - n, j - n, score, seam=1), n) for n, score in lengths]
            (value, matches), size = max(ends, key=lambda end: end[0][0])
            matched = value, (matches, i, j, size)
        best[i, j] = ((0, None), never) if i == j == 0 else (matched, unmatched)
    pairs: list[tuple[int, int]] = []
    matches = extend(len(a), len(b), 0)[1]
    while matches is not None:
        matches, i, j, size = matches
        pairs += [(i - k, j - k) for k in range(1, size + 1)]
    return pairs[::-1]


# --- the purpose of an edit ---------------------------------------------------------------------

_COLOURS = word_set(
    "red orange yellow green blue purple pink white black grey gray brown violet cyan magenta "
    "turquoise teal gold golden silver beige cream crimson scarlet maroon navy indigo lilac olive "
    "colorful colourful reddish orangish yellowish greenish bluish purplish pinkish whitish "
    "blackish greyish grayish brownish coloured colored"
)
_SHADES = word_set("light lighter dark darker bright brighter pale paler deep vivid")
_SIZES = word_set(
    "small big little large tiny huge giant gigantic enormous massive miniature tall short long "
    "wide narrow smaller bigger larger smallest biggest largest medium taller tallest shorter "
    "shortest longer longest wider widest narrower narrowest tinier tiniest"
)
_COUNTED = word_keys(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
# In digits up to 99: a larger number is a year, or the size of an image.
_NUMBERS = {
    **{str(number): number for number in range(100)},
    **dict(zip(_COUNTED, range(1, 21), strict=True)),
    "a": 1,
    "an": 1,
}
_SIDES = word_set(
    "left right above below over under underneath beneath beside next near behind before between "
    "front atop top bottom around outside out off onto among amid beyond against across"
)
# Begin a setting: "at night".
_PLACES = word_set("in at on by during inside within")
_NO_THINGS = _SIDES | {"of", "to"}


def purpose_of(alignment: WordAlignment) -> EditPurpose | None:
    """Return the purpose of an edit; None if only articles and the like changed.

    "a red cat" -> "a blue dog" is a swap and not a colour, "two cats" -> "three cats" and "a cat"
    -> "cats" are additions, and words after "in", "at", "on" or "by" are the setting, except its
    colours and sizes. Of several purposes the one that needs the most freedom holds.
    """
    source = _readings([word for word, _ in alignment.pairs if word])
    target = _readings([word for _, word in alignment.pairs if word])
    purposes: set[EditPurpose] = set()
    sides = False  # "left" was added or dropped, as in "left of" -> "to the right of"
    # A side took the place of "in" or the like, or the other way round.
    replaced = False
    for before, after in alignment.changes:
        readings = [source[before.number]] if before else []
        readings += [target[after.number]] if after else []
        words, leads = zip(*readings, strict=True)
        purpose = _change(words, leads, "removal" if before else "addition")
        has_side = not _SIDES.isdisjoint(words)
        if purpose == "setting" and has_side:
            replaced = True
        elif purpose:
            purposes.add(purpose)
        sides |= has_side
    # "in the snow" -> "under the stars"; else only its place changed.
    if replaced and purposes:
        purposes.add("setting")
    if sides and not purposes & {"addition", "removal", "setting"}:
        return "relation"
    return min(purposes, key=get_args(EditPurpose).index, default=None)


def _readings(words: Sequence[Word]) -> list[tuple[str, str]]:
    """Return the folded text of each word of a prompt and the last connective up to it.

    The first of "in front of" is read as "front", and a shade before a thing as "coloured".
    """
    texts = [fold(word.text) for word in words]
    readings: list[tuple[str, str]] = []
    lead = ""
    for text, following in zip(texts, [*texts[1:], ""], strict=False):
        if text in ("in", "on", "at") and following in ("front", "top", "bottom"):
            text = following
        elif text in _SHADES and following and is_content(following):
            text = "coloured"
        lead = text if text in CONNECTIVES else lead
        readings.append((text, lead))
    return readings


def _change(
    words: Sequence[str], leads: Sequence[str], unpaired: Literal["addition", "removal"]
) -> EditPurpose | None:
    """Return the purpose of a changed word of one or both prompts; None for articles and the like.

    `leads` has the connective before each, and `unpaired` the purpose of a word without a partner.
    """
    counts = [_NUMBERS[word] for word in words if word in _NUMBERS]
    if len(counts) == 2:
        more = counts[1] - counts[0]
        return None if more == 0 else "addition" if more > 0 else "removal"
    if _COLOURS.issuperset(words):
        return "colour"
    if _SIZES.issuperset(words):
        return "size"
    if len(words) == 2:
        if not _SIDES.isdisjoint(words):
            return "relation" if _PLACES.isdisjoint(words) else "setting"
        if words[1] in plurals(words[0]):
            return "addition"
        if words[0] in plurals(words[1]):
            return "removal"
    if not any(is_content(word) or word in CONNECTIVES for word in words):
        return None
    if _PLACES.issuperset(leads):
        return "setting"
    if not any(is_content(word) and word not in _NO_THINGS for word in words):
        return None
    return unpaired if len(words) == 1 else "swap"
