/* Words of a prompt, and the tokens of each. */

// Letters and digits, with inner apostrophes, hyphens and points of a number; or an emoji. A text
// without spaces (Chinese, Japanese, Thai) is one word here; Python cuts it into its characters.
const WORD =
  /[\p{L}\p{N}](?:[\p{L}\p{N}\p{M}\u00ad\u200c\u200d\u2060]|_+(?=[\p{L}\p{N}])|['\u2019\uff07\-\u2010\u2011\u00b7](?=[\p{L}\p{N}])|(?<=\d)[.,](?=\d))*|\p{Extended_Pictographic}[\p{M}\p{Emoji_Modifier}]*(?:\u200d\p{Extended_Pictographic}[\p{M}\p{Emoji_Modifier}]*)*/gu;

/**
 * Return the words of a prompt: {text, start, end, tokens}, with the positions of its tokens. A
 * token belongs to the first word that it overlaps; a word past the model's limit has none.
 */
export function wordsOf(prompt, tokens) {
  const words = [...prompt.matchAll(WORD)].map(({ 0: text, index }) => ({
    text,
    start: index,
    end: index + text.length,
    tokens: [],
  }));
  for (const { position, start, end } of tokens) {
    words.find((word) => start < word.end && end > word.start)?.tokens.push(position);
  }
  return words;
}

/** Return the words that a vocabulary lacks, each once. A word of several parts is known by these. */
export function unknownWords(words, vocabulary) {
  const known = new Set([...vocabulary, ""]);
  const isKnown = (word) => known.has(word) || word.split(/[-_'\u2010\u2011\u2019]/).every((part) => known.has(part));
  const texts = words.map(({ text }) => text.toLowerCase());
  return [...new Set(texts)].filter((text) => !isKnown(text));
}
