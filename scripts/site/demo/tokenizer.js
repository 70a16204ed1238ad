/* Tokens of a prompt, as CLIP's tokenizer makes them from `tokenizer.json`: pairs of bytes, merged. */

const PIECE = /'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\p{White_Space}\p{L}\p{N}]+/gu;

/** Return the printable character that stands for each byte: many bytes are no character. */
function byteLetters() {
  const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let spare = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : spare++));
}

/** Return a text in lower case with the place in the text that each character comes from. */
function lowered(text) {
  let letters = "";
  const places = [];
  for (let at = 0; at < text.length; ) {
    const character = String.fromCodePoint(text.codePointAt(at));
    const lower = character.toLowerCase(); // one by one: a text as a whole treats a last sigma otherwise
    letters += lower;
    for (let i = 0; i < lower.length; i++) places.push([at, at + character.length]);
    at += character.length;
  }
  return { letters, places };
}

export class Tokenizer {
  /** `file` is the content of `tokenizer.json`, `limit` the number of tokens that the model reads. */
  constructor(file, limit) {
    this.ids = file.model.vocab;
    this.ranks = new Map(file.model.merges.map((pair, rank) => [pair.join(" "), rank]));
    this.limit = limit;
    this.letters = byteLetters();
    [this.start, this.end] = ["<|startoftext|>", "<|endoftext|>"].map((text) => this.ids[text]);
  }

  /**
   * Return the ids of a text, padded to the limit, and its tokens: {position, start, end} with
   * characters of the text. Tokens past the limit are left out.
   */
  encode(text) {
    const { letters, places } = lowered(text);
    const found = [];
    for (const piece of letters.matchAll(PIECE)) {
      for (const token of this.merge(piece[0])) {
        const start = places[piece.index + token.first][0];
        const end = places[piece.index + token.last][1];
        found.push({ id: this.ids[token.text], position: found.length + 1, start, end });
      }
    }
    const tokens = found.slice(0, this.limit - 2);
    const ids = new Array(this.limit).fill(this.end); // it also pads
    [this.start, ...tokens.map((token) => token.id)].forEach((id, i) => (ids[i] = id));
    return { ids, tokens };
  }

  /** Return the tokens of a piece: {text, first, last}, with its first and its last character. */
  merge(piece) {
    const parts = [];
    let at = 0;
    for (const character of piece) {
      for (const byte of new TextEncoder().encode(character)) {
        parts.push({ text: this.letters[byte], first: at, last: at + character.length - 1 });
      }
      at += character.length;
    }
    parts.at(-1).text += "</w>"; // the end of a word
    for (;;) {
      const ranks = parts.slice(1).map((part, i) => this.ranks.get(`${parts[i].text} ${part.text}`) ?? Infinity);
      const best = Math.min(...ranks);
      if (best === Infinity) return parts;
      const place = ranks.indexOf(best);
      const [left, right] = parts.slice(place, place + 2);
      parts.splice(place, 2, { text: left.text + right.text, first: left.first, last: right.last });
    }
  }
}
