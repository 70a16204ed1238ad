"""The words of each family: what its tokenizers read, in small letters, templates and padding."""

import numpy as np
import pytest

import heedmap as hm
from families.checking import BOTH, check, check_family, count_passes, paint
from families.models import JOINT, TABLE, lengthened
from heedmap.backends import loading
from heedmap.backends.prompts import prompt_table
from heedmap.errors import HeedmapError, HeedmapWarning, TraceError, TruncatedWordError, WordError
from heedmap.recording.tracing import trace

SMALL = {"width": 64, "height": 96, "use_resolution_binning": False}
T5_12 = {"max_sequence_length": 12}


# --- what each tokenizer reads, of the tokenizers alone and in a pipeline ---

READ = ["sdxl", "sigma", "sana", "hunyuan", *JOINT]


@pytest.mark.parametrize("family", READ)
def test_models_are_read_with_and_without_their_weights(folder, family):
    call = {name: n for name, n in TABLE[family].call.items() if name == "max_sequence_length"}
    pipe, outline = hm.load(folder(family)), loading.outline(folder(family))
    assert type(pipe) is type(outline)
    tables = [prompt_table(one, "a red dog", call) for one in (pipe, outline)]
    assert tables[0] == tables[1] and tables[0].find("red") == TABLE[family].red
    words = loading.token_table("a red dog", folder(family)).words
    assert words == prompt_table(pipe, "a red dog").words


READERS = {  # the methods by which encoders read a prompt
    "sd3": "_get_t5_prompt_embeds",
    "bria": "_get_t5_prompt_embeds",
    "fibo": "get_prompt_embeds",
    "klein": "_get_qwen3_prompt_embeds",
    "dev2": "_get_mistral_3_small_prompt_embeds",
    "ovis": "_get_ovis_prompt_embeds",
    "qwen": "_get_qwen_prompt_embeds",
    "qwen21": "_get_qwen_prompt_embeds",
    "zimage": "_encode_prompt",
    "krea": "get_text_hidden_states",
    "lumina2": "_get_gemma_prompt_embeds",
}


@pytest.mark.parametrize("family", READERS)
def test_labels_are_those_that_the_encoder_read(load, family):
    pipe = load(family)
    read = getattr(pipe, READERS[family])

    def other(*args, **more):
        if "prompt" in more:
            return read(*args, **more | {"prompt": ["at sea"]})
        return read(["at sea"], *args[1:], **more)

    setattr(pipe, READERS[family], other)
    with pytest.raises(TraceError), trace(pipe):
        paint(pipe, prompt="a red house", **TABLE[family].arguments())


@pytest.mark.parametrize(
    ("family", "other"),
    [
        *[("sd3", name) for name in ("prompt_2", "prompt_3", "negative_prompt_3")],
        *[("sdxl", "prompt_2"), ("sdxl", "negative_prompt_2")],
    ],
)
def test_encoders_that_read_other_prompts_are_refused(load, family, other):
    """A negative one only if its branch is recorded."""
    pipe = load(family)
    passes = count_passes(pipe)
    with pytest.raises(TraceError, match=other), trace(pipe, branches=BOTH):
        paint(pipe, "a red house", **{other: "a blue house"})
    assert not passes
    if other == "negative_prompt_2":
        more = {"negative_prompt": "a cat", other: "a big tree", "width": 64, "height": 96}
        check(pipe, lambda: paint(pipe, "a red house", **more), ["a red house"])


def test_words_past_the_limit_have_no_map(load):
    """T5 has no start token, so that 39 of 40 are the prompt's."""
    pipe, prompt = load("sigma"), "at house " + "x" * 43 + " the end"
    with pytest.warns(HeedmapWarning, match="39 tokens"):
        recorder = check(pipe, lambda: paint(pipe, prompt, max_sequence_length=40), [prompt])
    assert recorder.maps[0]["house"].values.max() > 0
    with pytest.raises(HeedmapError, match="39"):
        _ = recorder.maps[0]["end"]


def test_a_negative_prompt_of_zeros_has_even_maps(load):
    """Without a negative prompt SDXL's negative branch reads zeros, not a text."""
    pipe = load("sdxl")
    with trace(pipe, {"layer"}, tokens="all", branches=("negative",)) as recorder:
        paint(pipe, "a red house", guidance_scale=5.0)
    for array in recorder.negative_maps[0].recording.arrays:
        np.testing.assert_allclose(array, 1 / 77, atol=1e-6)


# --- PixArt and Sana: a text in small letters, behind an instruction ---


@pytest.mark.parametrize("prompt", ["  A Red HOUSE ", "at İzmir, ΑΣ at sea"])
def test_a_text_that_is_lowercased_keeps_its_words(load, prompt):
    """A small letter may be two: the words are those that were written."""
    pipe, more = load("sigma"), {"max_sequence_length": 40, **SMALL}
    recorder = check(pipe, lambda: paint(pipe, prompt, **more), [prompt])
    table = recorder.recordings[0].table
    read = pipe.tokenizer(prompt.lower().strip())
    assert [token.id for token in table.tokens if token.kind in ("text", "end")] == read.input_ids
    assert [word.text for word in table.words] == prompt.replace(",", "").split()
    for token in table.tokens:
        (piece,) = pipe.tokenizer.convert_ids_to_tokens([token.id])
        if token.kind == "text" and piece not in ("▁", "<unk>"):
            assert token.text.lower().startswith(piece.removeprefix("▁"))


@pytest.mark.parametrize(
    ("prompt", "lines"),
    [("  A Red HOUSE ", None), ("?at sea", ["Draw this:", "Prompt: "]), ("?at sea", ["draw."])],
)
def test_words_behind_an_instruction_are_the_prompts(load, prompt, lines):
    """Gemma reads both in one text, and the image reads the last tokens behind the first."""
    pipe = load("sana")
    more = {**T5_12, "complex_human_instruction": lines, **SMALL}
    recorder = check(pipe, lambda: paint(pipe, prompt, **more), [prompt])
    table, text = recorder.recordings[0].table, prompt.strip().lower()
    instruction = "\n".join(lines or ())
    pipe.tokenizer.padding_side = "right"
    extra = len(pipe.tokenizer(instruction).input_ids) - 2 if lines else 0
    ids = pipe.tokenizer(instruction + text, padding="max_length", max_length=12 + extra).input_ids
    assert [token.id for token in table.tokens] == [ids[0], *ids[extra + 1 :]]
    assert [word.text for word in table.words] == prompt.replace("?", "").split()
    for word in table.words:
        assert len(word.tokens) == len(pipe.tokenizer(f" {word.text.lower()}").input_ids) - 1


# --- SD 3 and Flux: T5 beside CLIP ---


def test_a_map_is_the_sum_over_both_encoders_and_each_is_selected_alone(load):
    more = {"seed": 1, "steps": 2, "tokens": "all", "size": (48, 80), **T5_12}
    run = hm.generate(load("sd3"), "a red house", **more)
    parts = [run.maps.token(position).values for position in (5, 82)]
    np.testing.assert_allclose(run.maps["house"].values, sum(parts), atol=1e-6)
    for encoder, values in enumerate(parts):
        maps = run.maps.select(encoder=encoder)
        assert np.array_equal(maps["house"].values, values) and values.max() > 0
    with pytest.raises(WordError):
        run.maps.select(encoder=2)


def test_a_word_past_clip_is_read_by_t5(load):
    pipe, prompt = load("sd3"), "r " * 74 + "house at"
    table = prompt_table(pipe, prompt, {"max_sequence_length": 100})
    house, at = table.words[-2:]
    assert len(house.tokens) == 2 and house.missing == 0  # the last that CLIP reads
    assert len(at.tokens) == 1 and at.tokens[0] >= 77 and at.missing == 0
    assert not table.unread and table.loads == ((75, 75), (76, 99)) and table.room == 99
    with pytest.raises(TruncatedWordError):
        table.of_encoder(0).find("at")
    cut = prompt_table(pipe, prompt, {"max_sequence_length": 76})
    assert cut.words[-1].tokens == () and cut.words[-1].missing == 1


def test_without_t5_its_positions_are_padding(load):
    """The pipeline then passes zeros: no word may be labelled with them, even with a tokenizer."""
    pipe, more = load("sd3", text_encoder_3=None), {**T5_12, "width": 48, "height": 80}
    recorder = check(pipe, lambda: paint(pipe, "a red house", **more), ["a red house"])
    table = recorder.recordings[0].table
    assert {token.kind for token in table.tokens[77:]} == {"pad"} and table.room == 75
    assert [word.tokens for word in table.words] == [(1,), (2, 3, 4), (5,)]


def test_words_are_those_of_the_prompt_that_attention_reads(load):
    """T5 reads the second prompt of Flux, and CLIP's vector of the first has no attention."""
    pipe, second = load("flux"), ["a blue house", "at sea"]
    more = {"prompt_2": second, "negative_prompt_2": ["at night", ""]}  # an empty one is none
    prompts = ["a red house", "a cat"]
    recorder = check_family(pipe, "flux", prompts, read=second, seeds=(1, 2), **more)
    assert [maps.tokens.prompt for maps in recorder.negative_maps] == ["at night", ""]
    with pytest.warns(HeedmapWarning, match="blue:2"):  # only the prompt takes weights
        hm.generate(pipe, "at", prompt_2="a (blue:2) sea", steps=1, size=(32, 32), seed=1)


def test_a_quoted_text_is_read_letter_by_letter(load):
    pipe, more = load("longcat"), TABLE["longcat"].arguments(steps=1)
    with trace(pipe, tokens="all") as recorder:  # which compares with what the encoder read
        paint(pipe, prompt="a house of 'a house'", **more)
    table = recorder.recordings[0].table
    texts = [" ".join(table.tokens[n].text for n in word.tokens) for word in table.words]
    assert texts == ["a", "ho use", "of", "a", "h o u s e"]
    with pytest.raises(TraceError, match="apostrophes"):
        prompt_table(pipe, "it's Tom's")


@pytest.mark.parametrize(
    ("family", "name"), [("longcat", "enable_prompt_rewrite"), ("ernie", "use_pe")]
)
def test_edits_of_a_prompt_that_the_pipeline_rewrites_are_refused(load, family, name):
    pipe, more = load(family), {"seed": 1, "steps": 1, "size": (48, 80)}
    pipe.rewire_prompt = lambda prompt, device: ["at sea"]
    pipe._enhance_prompt_with_pe = lambda *_, **sides: "at sea"
    pipe.pe = pipe.pe_tokenizer = object()  # the enhancer of ERNIE-Image
    passes = count_passes(pipe)
    with pytest.raises(HeedmapError, match=name):
        hm.edit(pipe, "a red dog", "a red cat", **{name: True}, **more)
    assert not passes
    run = hm.generate(pipe, "a red dog", **{name: True}, **more)
    assert tuple(run.maps) == ("at", "sea")
    assert tuple(hm.generate(pipe, "a red dog", **more).maps) == ("a", "red", "dog")


# --- language models: templates ---


def test_the_template_and_the_padding_stand_around_the_words(load):
    table = prompt_table(load("klein"), "a red house", {"max_sequence_length": 24})
    assert table.positions("start") == (0, 1, 2)
    assert table.positions("end") == tuple(range(8, 17))
    assert table.positions("pad") == tuple(range(17, 24))


@pytest.mark.parametrize(
    "family",
    ["cogview4", "fibo", "longcat", "ovis", "qwen", "qwen21", "klein", "krea", "dev2", "zimage"],
)
def test_a_prompt_with_words_of_the_template_is_found_in_its_place(load, family):
    pipe, more = load(family), lengthened(TABLE[family].arguments(steps=1), 20)
    for prompt in ("user", "the image user", "{} a", "\n\na", "Grüße 🏠"):
        with trace(pipe, tokens="all") as recorder:  # which compares with what the encoder read
            paint(pipe, prompt=prompt, **more)
        table = recorder.maps[0].tokens
        assert [word.text for word in table.words] == [w for w in prompt.split() if w != "{}"]
        texts = [token.text for token in table.tokens if token.kind == "text"]
        assert texts and all(text in prompt for text in texts)
