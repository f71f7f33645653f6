"""Makes a file of the form of chat/jinja.jsonl, which is not kept here: what transformers renders with all chat templates in
the packages of TRL and Axolotl, 20 conversations each, and which of it the assistant wrote.

    pip download --no-deps trl==1.16.0 axolotl==0.19.0
    python make_templates.py FOLDER_OF_PACKAGES OUT.jsonl [TOKENIZER_FOLDER OUT_TOKENIZER_FOLDER]
    NDP_JINJA_CASES=OUT.jsonl [NDP_JINJA_TOKENIZER=OUT_TOKENIZER_FOLDER] build/test_jinja

Where a template has {% generation %}, `spans` is what transformers finds. Elsewhere `answers` has for each answer the bytes between
which it begins, and those between which it ends: it is found by its words, and what may stand around these is in the tables below.
With a tokenizer, to which the templates' special tokens are added, `ids` are those of the text, and `mask` is transformers' mask."""

import json
import pathlib
import re
import sys
import zipfile

import make_chat
import make_jinja

# ---- conversations ----

s, u = [lambda text, role=role: {"role": role, "content": text} for role in ("system", "user")]
COUNT = ("one", "two", "three", "four", "five")


def a(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(city, **more):
    return {"type": "function", "id": "call%05d" % len(city), "function": {"name": "get_weather", "arguments": {"city": city, **more}}}


def t(text, of):
    return {"role": "tool", "content": text, "name": "get_weather", "tool_call_id": of["id"]}


def turns(n, **more):
    return [m for i in COUNT[:n] for m in (u(f"Question {i}?"), a(f"Answer {i}.", **{k: v % i for k, v in more.items()}))]


def conversations():
    """1 to 5 turns; system prompts, white space, reasoning in tags and in fields, empty and equal answers, tools."""
    p, q = call("Paris"), call("Zürich", days=3)
    inline = "<think>\nReason %s.\n</think>\n\nAnswer %s."
    plain = [
        turns(1), [s("System prompt."), *turns(1)], turns(2), [s("System prompt."), *turns(3)], turns(5),
        [u("  Question one?\n"), a("  Answer one. \n"), u("Question two? "), a("\n\nAnswer two.\n")],
        [u("Question one?"), a(inline % ("one", "one"))],
        [m for i in COUNT[:3] for m in (u(f"Question {i}?"), a(inline % (i, i)))],
        turns(1, reasoning_content="Reason %s."), [s("System prompt."), *turns(3, reasoning_content="Reason %s.\n\nAnd more.")],
        [*turns(1, thinking="Reason %s."), *turns(2)[2:]],
        [u("Question one?"), a(""), *turns(2)[2:]], [u("Question one?"), a("")],
        [u("Question one?"), a("Yes"), u("Yes"), a("Yes"), u("Question three?"), a("Yes")],
        [u("Grüße {{ x }}, 世界?"), a("مرحبا {% if %} \U0001f30d <b>\"q\"</b> \\n"), u("Code?"), a("```python\nf(1)\n```\n<|x|> a &amp; b\n")]]
    tools = [
        turns(2),
        [u("Weather one?"), a("", tool_calls=[p]), t("Sunny one.", p), a("Answer one.")],
        [s("System prompt."), u("Weather one?"), a("Let me see one.", tool_calls=[p]), t("Sunny one.", p), a("Answer one."), *turns(2)[2:]],
        [u("Weather one?"), a("", tool_calls=[p], reasoning_content="Reason one."), t("Sunny one.", p),
         a("Answer one.", reasoning_content="Reason two."), u("Weather two?"), a("", tool_calls=[q]), t("Cold two.", q),
         a("Answer two.", reasoning_content="Reason three.")],
        [u("Weather one?"), a("", tool_calls=[p, q]), t("Sunny one.", p), t("Cold two.", q), a("Answer one."), *turns(2)[2:]]]
    return [{"messages": m, "tools": None} for m in plain] + [{"messages": m, "tools": [make_jinja.TOOL]} for m in tools]


# ---- what the assistant wrote ----

# What stands before an answer, and is not learned; what may be learned before it; and the tokens that end it.
HEADER = re.compile(r"""<\|im_start\|>(?:assistant\n|Assistant:) ?|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|<start_of_turn>model\n
 |<\|turn>model\n|<tool_response\|>|<\|header_start\|>assistant<\|header_end\|>\n\n|<｜Assistant｜>|<｜tool▁outputs▁end｜>|\[/INST\]
 |\[/TOOL_RESULTS\]|<\|CHATBOT_TOKEN\|>|<\|start\|>assistant|<\|assistant\|>|<\|model\|>|\[\|assistant\|\]|\#\#\#\ Response:\n|Assistant:
 |<end_of_utterance>\nAssistant:""", re.X)
LEAD = re.compile(r"""(?:\s|</?think>|<\|START_(?:RESPONSE|THINKING|ACTION)\|>|<\|END_THINKING\|>|<\|channel>(?:thought\n)?|<channel\|>
 |<\|channel\|>(?:analysis|final)|<\|message\|>|\ to=(?:user|self)|<\|recipient\|>)*""", re.X)
END = re.compile(r"""\s*(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<turn\|>|<\|tool_response>|<\|eot\|>
 |<\|python_end\|><\|eom\|>|<\|eom\|>
 |<｜end▁of▁sentence｜>|(?:<\|END_RESPONSE\|>|<\|END_ACTION\|>)?<\|END_OF_TURN_TOKEN\|>|<\|return\|>|<\|call\|>|<\|end\|>(?:\n</s>$)?
 |\[\|endofturn\|\]|<end_of_utterance>|</s>)""", re.X)
SPECIAL = re.compile(r"<\|?[^<>\s]+\|?>|\[/?[A-Z_]+\]|\[\|[a-z]+\|\]")
NEXT = re.compile(r"\s*(?:%s)" % SPECIAL.pattern)
# Write no token after an answer, or only after the last one: an answer ends with the token that opens the next message.
ENDLESS = ("metharme", "glm4moe")


def words_of(message):
    """Reasoning and content, and of calls the name and the last argument."""
    content = message["content"] or ""
    head, _, body = content.rpartition("</think>")
    thoughts = head.partition("<think>")[2] or message.get("reasoning_content") or message.get("thinking") or ""
    calls = [w for c in message.get("tool_calls", ()) for w in (c["function"]["name"], c["function"]["arguments"]["city"])]
    return thoughts.strip(), body.strip(), calls


def place(text, words, at, end):
    found = text.find(words, at, end)
    return (found, found + len(words)) if words and found >= 0 else None


def answers_of(name, text, messages):
    """For each answer, the least and most character where it begins, and where it ends; None: it cannot be told by its words."""
    out, at = [], 0
    for i, m in enumerate(messages):
        if m["role"] == "system":
            continue
        thoughts, body, calls = words_of(m)
        later = [words_of(o)[1] for o in messages[i + 1:] if o["role"] in ("user", "tool")]
        limit = next((p[0] for p in (place(text, w, at, len(text)) for w in later if w not in body) if p), len(text))
        if m["role"] != "assistant":
            found = place(text, body, at, len(text))
            if not found and m["role"] == "user":
                return None
            at = found[1] if found else at
            continue
        pieces, where = [], at
        for words in (thoughts, body, *calls):
            found = place(text, words, where, limit)
            if found:
                pieces.append(found)
                where = found[1]
            elif words == body and body and not calls:
                return None
        span = span_of(name, text, at, pieces, limit)
        if not span:
            return None
        out.append(span)
        at = span[1][1]
    return out


def span_of(name, text, at, pieces, limit):
    headers = [h.end() for h in HEADER.finditer(text, at, pieces[0][0] if pieces else len(text))]
    if not headers:
        return None
    header, calls = headers[0], "get_weather" in text[headers[0]:pieces[-1][1] if pieces else headers[0]]
    first, last = (pieces[0][0], pieces[-1][1]) if pieces else (LEAD.match(text, header).end(), LEAD.match(text, header).end())
    white = last + len(text[last:]) - len(text[last:].lstrip())
    end = END.search(text, last, limit) if calls else END.match(text, last)
    if (not end and name not in ENDLESS) or not (calls or LEAD.fullmatch(text, header, first)):
        return None
    call = text.rfind("</tool_call>", last, limit) + len("</tool_call>")
    end = end or NEXT.match(text, max(call, last))
    return [[header, first], [end.end()] * 2 if end else [call] * 2 if call > last else [last, white]]


# ---- files ----

def in_bytes(text, answers):
    return [[[len(text[:p].encode()) for p in pair] for pair in one] for one in answers]


def mask_of(offsets, spans):
    """As transformers has it: the tokens from that of a span's first character to that of its last one. -1: such a token ends
    with text that comes after the span, and is not learned here (data/corpus/encode.h)."""
    mask = [0] * len(offsets)
    for begin, end in spans:
        for k, (b, e) in enumerate(offsets):
            if b < end and e > begin and e > b:
                mask[k] = 1 if e <= end else -1
    return mask


def case_of(name, template, conversation):
    out = make_jinja.case(template, conversation, False)
    written = out.get("text", "")
    if any(m["role"] == "assistant" and not m.get("tool_calls") and words_of(m)[1] not in written for m in conversation["messages"]):
        out.pop("spans", None)  # contents must be lists: refused
    elif "text" in out and "spans" not in out:
        answers = answers_of(name, out["text"], conversation["messages"])
        out["answers"] = answers and in_bytes(out["text"], answers)
    return out


def add_ids(case, tokenizer):
    text = case["text"]
    encoding = tokenizer.encode(text, add_special_tokens=False)
    case["ids"] = encoding.ids
    if "spans" in case:
        chars = [[len(text.encode()[:p].decode()) for p in pair] for pair in case["spans"]]
        case["mask"] = mask_of(encoding.offsets, chars)


def tokenizer_with(folder, texts, out):
    """That of the folder, and the special tokens of the texts."""
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.add_special_tokens(sorted({tag for t in texts for tag in SPECIAL.findall(t)}))
    pathlib.Path(out).mkdir(exist_ok=True)
    tokenizer.save(f"{out}/tokenizer.json")
    return tokenizer


def templates(folder):
    for package, path in (("trl", "trl/chat_templates/"), ("axolotl", "axolotl/utils/chat_templates/templates/")):
        with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as z:
            for name in sorted(z.namelist()):
                if name.startswith(path) and name.endswith(".jinja"):
                    yield package, name[len(path):-6], z.read(name).decode()


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    cases = {(package, name, template): [case_of(name, template, c) for c in conversations()]
             for package, name, template in templates(folder)}
    rendered = [c for some in cases.values() for c in some if "text" in c]
    if len(sys.argv) > 3:
        tokenizer = tokenizer_with(sys.argv[3], [c["text"] for c in rendered], sys.argv[4])
        for case in rendered:
            add_ids(case, tokenizer)
    lines = [json.dumps({"name": f"{package}/{name}", "template": template, "variables": make_jinja.VARIABLES,
                         "special": sorted({tag for c in some for tag in SPECIAL.findall(c.get("text", ""))}), "date": make_chat.Clock.now().date().isoformat(), "cases": some}, ensure_ascii=False)
             for (package, name, template), some in cases.items()]
    out.write_text("".join(line + "\n" for line in lines))
    untold = [f"{key[0]}/{key[1]} {i}" for key, some in cases.items() for i, c in enumerate(some) if c.get("answers", 0) is None]
    crossing = sum(-1 in c.get("mask", ()) for c in rendered)
    print("%d templates, %d renderings; masks with a token across the end of a span: %d; answers that their words do not tell: %d (%s)"
          % (len(lines), len(rendered), crossing, len(untold), ", ".join(untold)))


if __name__ == "__main__":
    main()
