"""Holds our tokenizer to the reference: SentencePiece models through transformers' converters, and `tokenizers`' own.

    python make_tokenizers.py golden CORPORA                     the small files of this folder, anew
    python make_tokenizers.py ties CORPORA                       those of `ties` alone
    python make_tokenizers.py compare CORPORA PROGRAM            large vocabularies, the whole table nmt_nfkc: a table
    python make_tokenizers.py fuzz CORPORA PROGRAM SECONDS SEED  pipelines and patterns at random

CORPORA is the folder corpora/ of the test data, PROGRAM is build/ndparallel. README.md beside tells about the files.
"""

import collections
import dataclasses
import hashlib
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import types
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import transformers.convert_slow_tokenizer

HERE = pathlib.Path(__file__).parent

# ---- texts ----

FRAGMENTS = [
    "Hello", "world", " the", " of", "'s", "'LL", "don't", "a", "I", "\n", "\n\n", " ", "  ", "   ", "\t", "\r\n", "\u00a0", "\u3000",
    "\u2581", "\u2581\u2581", "_", "1", "23", "4567", "\u00b2", "\u00bd", "\u0663", "\u2167", "\u4e94", ".", ",", "!?", "...", "\u2026",
    "``", "''", "\"", "$", "+", "~", "\u00ab", "\u2014", "\u3002", "\uff01", "<unk>", "<s>", "</s>", "<x>", "<X>", " <y> ", "<0x41>",
    "word", "words", "\u00c9", "e\u0301", "\u00df", "\u1e9e", "\u0130", "\u0131", "\u01c5", "\u03a3\u03c2", "\ufb01", "\uff21\uff22", "\u2460",
    "\u212b", "\u1100\u1161\u11a8", "\uac01", "\ud55c\uae00", "\u4e2d\u6587", "\u65e5\u672c\u8a9e", "\u30ab\u3099", "\u30ac", "\uff76\uff9e",
    "\u0915\u094d\u0937\u093f", "\u0e33", "\u0e01\u0e33", "\u0627\u0644\u0639", "\u05e9\u05c1\u05b8", "\u200b", "\u200c", "\u200d", "\ufeff",
    "\ufffd", "\ufffc", "\u00ad", "\u0000", "\u0001", "\u0008", "\u001f", "\u007f", "\u0085", "\u009f", "\u2028", "\u2029", "\u202e",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\U0001d49c",
    "\U00020000", "\U000e0001", "\ue000", "\U0010fffd", "a\u0323\u0307", "a\u0307\u0323", "\u0344", "\u1fcd", "\u2126", "\u0958",
]


def assigned(low, high):
    """Characters of Unicode 14, which all compared implementations know: newer ones are not what is compared."""
    return [chr(c) for c in range(low, high) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


BLOCKS = [assigned(0, 0x80), assigned(0x80, 0x250), assigned(0x250, 0x700), assigned(0x700, 0x2000), assigned(0x2000, 0x3400),
          assigned(0x3400, 0xa000), assigned(0xa000, 0x10000), assigned(0x10000, 0x20000)]


class Texts:
    """Texts at random: lines of the corpora, fragments, characters of all blocks."""

    def __init__(self, corpora):
        self.lines = [json.loads(line)["text"] for line in (corpora / "udhr.jsonl").open(encoding="utf-8")]
        self.english = (corpora / "tinyshakespeare.txt").read_text(encoding="utf-8").split("\n\n")

    def one(self, rng):
        kind = rng.randrange(6)
        if kind == 0:
            line = rng.choice(self.lines)
            at = rng.randrange(max(1, len(line) - 60))
            return line[at:at + rng.randrange(5, 60)]
        if kind == 1:
            return rng.choice(self.english)[:80]
        if kind == 2:
            return "".join(rng.choice(rng.choice(BLOCKS)) for _ in range(rng.randrange(1, 24)))
        if kind == 3:
            return "".join(rng.choice(BLOCKS[0]) for _ in range(rng.randrange(0, 12)))
        return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 10)))

    def some(self, rng, n):
        return [self.one(rng) for _ in range(n)]


# ---- SentencePiece, through transformers' converters ----


def train_sentencepiece(corpora, path, alphabet=0x110000, **options):
    lines = [line for text in Texts(corpora).lines for line in text.split("\n") if all(ord(c) < alphabet for c in line)][:20000]
    lines += (corpora / "tinyshakespeare.txt").read_text(encoding="utf-8").split("\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, hard_vocab_limit=False, num_threads=1,
        **{"character_coverage": 0.98, "input_sentence_size": 0} | options)
    path.write_bytes(model.getvalue())
    return path


def convert(name, path, **attributes):
    """What transformers makes of a SentencePiece model; `attributes` are those of the Python tokenizer it asks."""
    proto = sentencepiece.SentencePieceProcessor(model_file=str(path))
    slow = types.SimpleNamespace(
        vocab_file=str(path), convert_tokens_to_ids=proto.piece_to_id, convert_ids_to_tokens=proto.id_to_piece,
        pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>", _extra_ids=5, **attributes)
    return getattr(sys.modules["transformers.convert_slow_tokenizer"], name + "Converter")(slow).converted()


CONVERSIONS = {
    "t5": ("T5", {}), "t5-new": ("T5", {"legacy": False}), "xlm-roberta": ("XLMRoberta", {}), "camembert": ("Camembert", {}),
    "albert": ("Albert", {"do_lower_case": True, "keep_accents": False}),
    "xlnet": ("XLNet", {"do_lower_case": False, "keep_accents": True}),
    "llama": ("Llama", {"legacy": True, "add_prefix_space": True}), "llama-new": ("Llama", {"legacy": False, "add_prefix_space": True}),
    "gemma": ("Gemma", {}), "reformer": ("Reformer", {}), "bert-generation": ("BertGeneration", {}),
    "mbart": ("MBart", {}), "pegasus": ("Pegasus", {"offset": 103, "mask_token_sent": "<mask_1>", "mask_token_id": 3, "eos_token_id": 1}),
    "rembert": ("RemBert", {"do_lower_case": False, "keep_accents": True}), "xglm": ("XGLM", {}),
    "big-bird": ("BigBird", {}), "deberta-v2": ("DebertaV2", {"do_lower_case": True, "split_by_punct": True}),
}

# ---- ours ----


@dataclasses.dataclass
class Program:
    path: str
    folder: pathlib.Path

    def run(self, tokenizer, lines, *options):
        source, texts = self.folder / "tokenizer.json", self.folder / "in.jsonl"
        source.write_text(tokenizer, encoding="utf-8")
        texts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        done = subprocess.run([self.path, "tokenize", "--tokenizer", str(source), "--file", str(texts), *options],
                              capture_output=True, text=True, encoding="utf-8", timeout=120)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    def differences(self, source, texts, special=False):
        """(text, what, theirs, ours) of each text that is not encoded, or its ids not decoded, alike. `source` is a tokenizer.json, read
        by both: the reference's reader rounds scores, so a tokenizer in memory and its file are two."""
        reference = Tokenizer.from_str(source)
        want = [e.ids for e in reference.encode_batch(texts, add_special_tokens=special)]
        got = self.run(source, [{"text": t} for t in texts], *["--special"] * special)
        found = [(t, "ids", [reference.id_to_token(i) for i in w], [reference.id_to_token(i) for i in g])
                 for t, w, g in zip(texts, want, got, strict=True) if w != g]
        # Since 0.23 the reference decodes a token that is looked for in normalized text as its normalized text; 0.22
        # and we, as it was added.
        changed = {i for i, t in reference.get_added_tokens_decoder().items() if reference.id_to_token(i) != t.content}
        lists = [ids for ids in want if not changed & set(ids)]
        for skip in (True, False):
            decoded = self.run(source, lists, "--decode", *["--special"] * (not skip))
            texts = [attempt(reference.decode, w, skip_special_tokens=skip) for w in lists]
            found += [(w, "text", t, d) for w, t, d in zip(lists, texts, decoded, strict=True) if t is not None and t != d]
        return found


def attempt(function, *arguments, **named):
    """The result, or None where the reference panics, which is no Exception."""
    try:
        return function(*arguments, **named)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def report(name, found, n, reference):
    print(f"  {name:40} {n:6} texts {len(found):5} differences", flush=True)
    for text, what, theirs, ours in found[:3]:
        print(f"    {what} of {text!r}\n      theirs {theirs!r}\n      ours   {ours!r}")
    if found:
        stages = {k: v for k, v in json.loads(reference.to_str()).items() if k not in ("model", "version")}
        print("    " + json.dumps(stages)[:3000])


# ---- large ones ----


def compare(corpora, program):
    texts = Texts(corpora).some(random.Random(1), 3000)
    with tempfile.TemporaryDirectory() as folder:
        ours = Program(program, pathlib.Path(folder))
        for rule in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "identity"):
            for byte_fallback in (False, True):
                path = train_sentencepiece(corpora, pathlib.Path(folder) / "spm.model", vocab_size=8000,
                                           model_type="unigram", normalization_rule_name=rule, byte_fallback=byte_fallback)
                for name, (converter, attributes) in CONVERSIONS.items():
                    try:
                        reference = convert(converter, path, **attributes)
                    except Exception as e:
                        print(f"  {name}: not converted: {e!r}")
                        continue
                    label = f"{name} {rule}{' bytes' if byte_fallback else ''}"
                    try:
                        report(label, ours.differences(reference.to_str(), texts, special=True), len(texts), reference)
                    except RuntimeError as e:
                        print(f"  {label:40} refused: {e}")


# ---- small ones, to be kept ----


def rules(path):
    """A small table in place of nmt_nfkc's: NFKC of some blocks, control characters that go, spaces that become one."""
    some = [c for block in ((0xa0, 0x180), (0x2000, 0x2150), (0x2460, 0x2480), (0x3200, 0x3280), (0xfb00, 0xfb07), (0xff01, 0xffa0)) for c in range(*block)]
    lines = [f"{c:X}\t{' '.join(f'{ord(x):X}' for x in unicodedata.normalize('NFKC', chr(c)))}" for c in some
             if unicodedata.normalize("NFKC", chr(c)) != chr(c)]
    lines += [f"{c:X}\t" for c in (*range(1, 9), *range(0xe, 0x20), 0x7f)] + [f"{c:X}\t20" for c in (9, 10, 13, 0x200b, 0xfeff)]
    lines += ["41 30A\tC5", "30AB 3099\t30AC", "E01 E33\tE01 E4D E32", "61 323 307\t1EA1 307"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def trained(corpora, kind):
    """As `tokenizers` itself trains them, with many stages."""
    t = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE(unk_token="<unk>", fuse_unk=True))
    special = {"special_tokens": ["<unk>", "<s>", "</s>"], "show_progress": False}
    if kind == "unigram":  # as SentencePieceUnigramTokenizer has it
        t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=400, unk_token="<unk>", **special)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Strip(True, False), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+(?!\S)|[\p{Han}]"), "isolated"), pre_tokenizers.Punctuation("merged_with_previous"),
            pre_tokenizers.Metaspace("\u2581", "first", True)])
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(vocab_size=500, limit_alphabet=200, **special)
    t.train_from_iterator(Texts(corpora).english[:3000] + FRAGMENTS, trainer)
    t.add_tokens([AddedToken("<x>", lstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False), AddedToken("  ", rstrip=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def tie_scores(rng, pieces):
    """Scores that sum to the same, but for the last bits, on many ways: a piece's is the sum of its characters'."""
    each = {c: -rng.uniform(1, 9) if rng.random() < 0.2 else -3.3 for c in sorted(set("".join(pieces)))}
    digits, single = rng.randrange(1, 18), rng.random() < 0.5
    scores = [float(f"{sum(each[c] for c in piece):.{digits}g}") for piece in pieces]
    return [struct.unpack("f", struct.pack("f", x))[0] if single else x for x in scores]


def tying(corpora):
    """A unigram model in which most texts have ways of equal scores, or nearly: the order of sums and the last bits decide."""
    text = "\n".join(Texts(corpora).english[:2000])
    counts = collections.Counter(text[i:i + n] for n in (2, 3, 4) for i in range(len(text) - n + 1))
    pieces = sorted(set(text) | {piece for piece, _ in counts.most_common(500)} | {"0", "00", "000", "01", "1", "10"})
    scores = [sum(-2 - (7 * ord(c) % 31) / 13 for c in piece) for piece in pieces]
    return Tokenizer(models.Unigram([("<unk>", 0.0), *zip(pieces, scores)], 0, False))


def digest(data):
    return hashlib.sha256(data).hexdigest()[:8]


def golden(corpora):
    texts = Texts(corpora).some(random.Random(3), 300) + FRAGMENTS
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        own = {"normalization_rule_tsv": str(rules(path / "rules.tsv")), "vocab_size": 450, "model_type": "unigram"}
        plain = train_sentencepiece(corpora, path / "plain.model", alphabet=0x250, **own)
        fallback = train_sentencepiece(corpora, path / "bytes.model", alphabet=0x250, byte_fallback=True, **own | {"vocab_size": 600})
        made = {name: convert(CONVERSIONS[name][0], source, **CONVERSIONS[name][1])
                for name, source in (("t5", plain), ("albert", plain), ("llama", fallback))}
    made |= {"trained-unigram": trained(corpora, "unigram"), "trained-bpe": trained(corpora, "bpe")}
    texts = [t for t in texts if all(attempt(m.encode, t) for m in made.values())]
    made |= {"ties": tying(corpora)}
    (HERE / "texts.jsonl").write_text("".join(json.dumps({"text": t}, ensure_ascii=i % 8 == 0) + "\n" for i, t in enumerate(texts)), encoding="utf-8")
    keep(made, texts)


def ties(corpora):
    keep({"ties": tying(corpora)}, [json.loads(line)["text"] for line in (HERE / "texts.jsonl").open(encoding="utf-8")])


def keep(made, texts):
    """Writes each tokenizer, and what the reference makes of the texts after it has read that file."""
    for name, t in made.items():
        source = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(source, encoding="utf-8")
        t = Tokenizer.from_str(source)
        ids = [e.ids for e in t.encode_batch(texts)]
        lines = [f"{len(i)} {digest(struct.pack(f'<{len(i)}I', *i))} {digest(t.decode(i).encode())}\n" for i in ids]
        (HERE / f"{name}.expected").write_text("".join(lines))
        print(f"  {name:20} {t.get_vocab_size():6} tokens {sum(map(len, ids)):7} ids of {len(texts)} texts")


# ---- pipelines at random ----

BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PATTERNS = [r"\s+", r"\d{1,3}", r"\p{L}+|\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+", r"[\p{Han}]+", r"\s+(?!\S)",
            r"a|b", r"[aeiou]", r"\b", r"(?<=[a-z])(?=[A-Z])", r"\r\n|\n", r"x*", r"^", r"$", r".", r"\w+", r"\W"]


def pattern(rng):
    return Regex(rng.choice(PATTERNS)) if rng.random() < 0.6 else rng.choice([" ", "a", "\u2581", "--", "\n", "the"])


def normalizer(rng):
    return rng.choice([
        normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt,
        lambda: normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5),
        lambda: normalizers.Prepend(rng.choice(["\u2581", " ", "ab"])),
        lambda: normalizers.Replace(pattern(rng), rng.choice(["\u2581", " ", "", "xy", "\u00e9"])),
        lambda: normalizers.Replace(" ", "\u2581"),
    ])()


def pre_tokenizer(rng, byte_level):
    kinds = [
        lambda: pre_tokenizers.Split(pattern(rng), rng.choice(BEHAVIORS), rng.random() < 0.3),
        lambda: pre_tokenizers.Digits(rng.random() < 0.5),
        lambda: pre_tokenizers.Metaspace("\u2581", rng.choice(["always", "first", "never"]), rng.random() < 0.5),
        pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer,
        lambda: pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)),
        lambda: pre_tokenizers.CharDelimiterSplit(rng.choice("- a")),
    ]
    chosen = [rng.choice(kinds)() for _ in range(rng.randrange(0 if byte_level else 1, 3))]
    if byte_level:
        chosen.append(pre_tokenizers.ByteLevel(rng.random() < 0.5, True, rng.random() < 0.5))
    return pre_tokenizers.Sequence(chosen) if len(chosen) != 1 or rng.random() < 0.3 else chosen[0]


def decoder(rng):
    one = lambda: rng.choice([
        decoders.ByteLevel, decoders.ByteFallback, decoders.Fuse, lambda: decoders.Metaspace("\u2581", rng.choice(["always", "first", "never"])),
        lambda: decoders.Strip(rng.choice(" a"), rng.randrange(3), 0), lambda: decoders.Strip(rng.choice(" a"), 0, rng.randrange(3)),
        lambda: decoders.Replace(pattern(rng), rng.choice([" ", "", "zz"]))])()
    n = rng.randrange(4)
    return None if n == 0 else one() if n == 1 else decoders.Sequence([one() for _ in range(n)])


def post_processor(rng, tokenizer):
    template = processors.TemplateProcessing(single=rng.choice(["<s> $A", "$A </s>", "<s> $A </s>", "<s> <s> $A"]), pair="$A $B",
                                             special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")])
    return rng.choice([None, template, processors.ByteLevel(), processors.Sequence([processors.ByteLevel(), template])])


def pipeline(rng, texts):
    """A tokenizer with stages at random, trained on what they leave of texts at random."""
    byte_level, unigram = rng.random() < 0.3, rng.random() < 0.5
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    t = Tokenizer(models.Unigram() if unigram else models.BPE(unk_token="<unk>", fuse_unk=rng.random() < 0.5))
    n = rng.randrange(4)
    if n:
        t.normalizer = normalizer(rng) if n == 1 else normalizers.Sequence([normalizer(rng) for _ in range(n)])
    if byte_level or rng.random() < 0.8:
        t.pre_tokenizer = pre_tokenizer(rng, byte_level)
    special, size = ["<unk>", "<s>", "</s>"], rng.randrange(60, 500)
    trainer = (trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", initial_alphabet=alphabet, show_progress=False)
               if unigram else trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    t.train_from_iterator(texts.some(rng, 300), trainer)
    if rng.random() < 0.4:  # bytes for unknown characters, or for some of them only
        full = json.loads(t.to_str())
        known, left_out = full["model"]["vocab"], rng.choice([0, 0, 9])
        for i in range(256):
            name = f"<0x{i:02X}>"
            if left_out and i % left_out == 0 or (name in known if not unigram else any(name == w for w, _ in known)):
                continue
            if unigram:
                known.append([name, -20.0])
            else:
                known[name] = len(known)
        full["model"]["byte_fallback"] = True
        full["added_tokens"] = []
        t = Tokenizer.from_str(json.dumps(full))
        t.add_special_tokens(special)
    if not unigram and rng.random() < 0.3:
        t.model.ignore_merges = True
    if unigram and rng.random() < 0.5:
        full = json.loads(t.to_str())
        pieces = [piece for piece, _ in full["model"]["vocab"]]
        full["model"]["vocab"] = [*zip(pieces, tie_scores(rng, pieces))]
        t = Tokenizer.from_str(json.dumps(full))
    flag = lambda: rng.random() < 0.4
    for text in ("<x>", "<y>", "word", "the", " a", "\u00c9", "  ", "<x><y>"):
        if flag():
            token = AddedToken(text, single_word=flag(), lstrip=flag(), rstrip=flag(), normalized=flag())
            if token.normalized and t.normalizer and not t.normalizer.normalize_str(text):
                continue  # found everywhere: the reference panics or does not end; ours refuses it
            t.add_special_tokens([token]) if flag() else t.add_tokens([token])
    d = decoder(rng)
    if d:
        t.decoder = d
    p = post_processor(rng, t)
    if p:
        t.post_processor = p
    return t


def fuzz(corpora, program, seconds, seed):
    rng, texts, end = random.Random(int(seed)), Texts(corpora), time.monotonic() + float(seconds)
    counts = {"equal": 0, "different": 0, "reference fails": 0, "refused": {}}
    with tempfile.TemporaryDirectory() as folder:
        ours = Program(program, pathlib.Path(folder))
        while time.monotonic() < end:
            reference, some = attempt(pipeline, rng, texts), texts.some(rng, 200)
            if not reference or not attempt(reference.encode_batch, some):
                counts["reference fails"] += 1
                continue
            try:
                found = ours.differences(reference.to_str(), some, special=rng.random() < 0.5)
            except RuntimeError as e:
                reason = str(e).split("tokenizer.json: ")[-1][:100]
                counts["refused"][reason] = counts["refused"].get(reason, 0) + 1
                continue
            counts["different" if found else "equal"] += 1
            if found:
                report("pipeline", found, len(some), reference)
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    commands = {"golden": golden, "ties": ties, "compare": compare, "fuzz": fuzz}
    commands[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])
