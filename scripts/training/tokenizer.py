"""The stage `tokenizer`: byte-pair merges learned from captions, in the files of a CLIPTokenizer.

Common words become one token each. A few are kept from the training on purpose, so that the
embedded model has words of several tokens, as every real tokenizer has.
"""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

from heedmap.io.writing import whole_folder
from training.models import MAX_TOKENS
from training.pictures import any_layout
from world import captions

SPLIT_WORDS = ("butterfly", "butterflies", "mushroom", "mushrooms", "purple", "cactus")
"""Words of the world that are several tokens, because the byte-pair training never sees them."""
PIECES = (
    "buttery buttermilk butters fly flies mushy mushes room rooms purse purrs ripple apple cacti "
    "thus"
)
"""Words that share their beginnings and ends, so that these become tokens instead of letters."""


def train_tokenizer(work: Path, merges: int = 480) -> None:
    """Learn at most `merges` merges from 20,000 captions, and save them in `work/tokenizer`."""
    learned = learn_merges(corpus(count=20_000), merges)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(c + "</w>" for c in letters), *("".join(pair) for pair in learned)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=learned, model_max_length=MAX_TOKENS)
    shutil.rmtree(work / "tokenizer", ignore_errors=True)
    with whole_folder(work / "tokenizer") as folder:
        tokenizer.save_pretrained(folder)
    words = (*sorted(captions.vocabulary()), "giraffe", "한국", "🦒")
    print(len(tokenizer), "tokens;", {w: len(tokenizer(w)["input_ids"]) - 2 for w in words})


def whole_words() -> list[str]:
    """The words of the world that are one token each, sorted."""
    return sorted(captions.vocabulary() - set(SPLIT_WORDS))


def corpus(count: int) -> list[str]:
    """What the merges are learned from."""
    rng = Random(0)
    texts = [captions.caption(any_layout(seed), rng).text for seed in range(count)]
    # Words without meaning (letters at random) must not be learned as wholes.
    known = {*whole_words(), ","}
    lines = [
        " ".join(word for word in text.replace(",", " ,").split() if word in known)
        for text in texts
    ]
    return lines + [PIECES] * 200  # often enough to be merged


def learn_merges(lines: list[str], merges: int) -> Any:
    """Pairs to merge, the most frequent first; transformers says lists of text, and takes pairs."""
    bpe = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    bpe.normalizer = normalizers.Lowercase()
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    # The trainer's vocabulary counts the single characters too, some sixty of them.
    bpe.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=merges + 60, end_of_word_suffix="</w>")
    )
    return [tuple(pair) for pair in json.loads(bpe.to_str())["model"]["merges"]]
