"""Properties of what chat templates make of conversations (src/text/chat/jinja.py), over generated ones: a template x begin
and end tokens, each a special token of the template x 1 to 5 turns x a system prompt or none; and over those in
$NDP_TEST_DATA/reports, if that is set.

    templates_property.py SOURCE_DIR N                 the templates below, every N-th conversation
    templates_property.py SOURCE_DIR N FOLDER...       all templates in *.jinja and in the strings of *.py there

1. Every content of the assistant is trained on.
2. So is the special token right after it; or, if there is none, no more than the template's own end text.
3. No content of another role is, and of the next message nothing but a token that stands right after a content.
"""

import ast
import collections
import itertools
import json
import os
import pathlib
import re
import sys

EACH, DONE = "{% for m in messages %}", "{% endfor %}"


def prompt(text):
    return "{% if add_generation_prompt %}" + text + "{% endif %}"


ANSWER = "{% if m.role == 'assistant' %}"
CHATML = EACH + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n" + DONE + prompt("<|im_start|>assistant\n")
OWN = {
    "chatml": CHATML,
    "chatml behind a begin token": "{{ bos_token }}" + CHATML,
    "a default system prompt": EACH + "{% if loop.first and m.role != 'system' %}<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n" + DONE + prompt("<|im_start|>assistant\n"),
    "no line breaks": EACH + "<|s|>{{ m.role }}<|m|>{{ m.content }}<|e|>" + DONE + prompt("<|s|>assistant<|m|>"),
    "no opening token": "{{ bos_token }}" + EACH + "Bot {{ m.role }}: {{ m.content }}<|end|>" + DONE + prompt("Bot assistant:"),
    "no opening token, lines": EACH + "{{ m.role + ': ' + m.content + eos_token + '\n' }}" + DONE + prompt("assistant: "),
    "headers": "{{ bos_token }}" + EACH + "<|h|>{{ m.role }}<|/h|>\n\n{{ m.content | trim }}<|eot|>" + DONE
    + prompt("<|h|>assistant<|/h|>\n\n"),
    "instructions": "{{ bos_token }}" + EACH + ANSWER + " {{ m.content }}{{ eos_token }}{% else %}[INST] {{ m.content }} [/INST]"
    "{% endif %}" + DONE,
    "a begin token a turn": EACH + ANSWER + " {{ m.content }} {{ eos_token }}{% else %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% endif %}" + DONE,
    "a prompt always": EACH + "<|s|><|{{ m.role }}|>{{ m.content }}<|e|>" + DONE + "<|s|><|assistant|>",
    "a prompt always, and more": "{{ bos_token }}" + EACH + "<|s|><|{{ m.role }}|>" + ANSWER + "<|r|>{% endif %}{{ m.content }}"
    + ANSWER + "<|/r|>{% endif %}<|e|>" + DONE + "<|s|><|assistant|>" + prompt("<|r|>"),
    "another last token": EACH + "<|s|>{{ m.role }}<|m|>{{ m.content }}{% if loop.last %}<|r|>{% else %}<|e|>{% endif %}" + DONE
    + prompt("<|s|>assistant<|m|>"),
    "two end tokens": EACH + "<|s|>{{ m.role }}\n{{ m.content }}" + ANSWER + "<|/r|>{% endif %}<|e|>" + DONE + prompt("<|s|>assistant\n"),
    "an end token after all": EACH + "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n" + DONE
    + "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
    "no end token": "[gM]<sop>" + EACH + "<|{{ m.role }}|>\n{{ m.content }}" + DONE + prompt("<|assistant|>\n"),
    "an end token after the last": EACH + "<|{{ m.role }}|>{{ m.content }}" + DONE + "{% if add_generation_prompt %}<|assistant|>"
    "{% else %}{{ eos_token }}{% endif %}",
    "sections": EACH + "### {{ m.role }}:\n{{ m.content }}\n\n" + DONE + prompt("### assistant:\n"),
    "words": EACH + "{{ m.role.upper() }}: {{ m.content }}" + ANSWER + "{{ eos_token }}{% else %} {% endif %}" + DONE
    + prompt("ASSISTANT:"),
    "blocks": EACH + "<|{{ m.role }}|>\n" + ANSWER + "{% generation %}{{ m.content + '<|end|>\n' }}{% endgeneration %}{% else %}"
    "{{ m.content + '<|end|>\n' }}{% endif %}" + DONE + "{% if add_generation_prompt %}<|assistant|>\n{% else %}"
    "{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}",
    "reasoning": EACH + "<|s|>{{ m.role }}\n" + ANSWER + "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    "{{ m.content }}<|e|>\n" + DONE + prompt("<|s|>assistant\n"),
}

LITERAL = re.compile(r"<[|/]?[^<>\s{}%'\"]+>|\[/?[A-Z]+\]|\[\|[^\[\]\s{}%]+\|\]")
COUNT = ("one", "two", "three", "four", "five")


def load(source):
    """The program that renders, as a module."""
    programs, names = ("base/sandbox", "text/chat/answers", "text/chat/jinja"), {"__name__": "jinja"}
    text = "".join((pathlib.Path(source) / "src" / f"{name}.py").read_text() for name in programs)
    exec(compile(text, "jinja.py", "exec"), names)
    return names["Renderer"]


def conversation(turns, system):
    """Contents are words that no template has."""
    say = lambda role, text: {"role": role, "content": text}
    talk = [m for i in COUNT[:turns] for m in (say("user", f"Qzu {i} zuq?"), say("assistant", f"Azn {i} nza."))]
    return [say("system", "Szy prompt yzs."), *talk] if system else talk


def talks():
    """Generated ones, and those of reports: messages and tools."""
    for turns, system in itertools.product(range(1, 6), (False, True)):
        yield "%d turns, system %s" % (turns, system), conversation(turns, system), None
    for path in sorted(pathlib.Path(os.environ.get("NDP_TEST_DATA") or "/nowhere").glob("reports/*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "messages" in record:  # what a tool says must not also be an answer
                messages = [{**m, "content": "Tzo " + m["content"]} if m["role"] == "tool" else m for m in record["messages"]]
                yield path.name, messages, record.get("tools") if isinstance(record.get("tools"), list) else None
                break


def trained(text, spans):
    """Whether each byte is."""
    out = bytearray(len(text))
    for begin, end in spans:
        out[begin:end] = b"\1" * (end - begin)
    return out


class Check:
    def __init__(self, tokens):
        token = b"(?:%s)" % b"|".join(re.escape(t.encode()) for t in sorted(tokens, key=len, reverse=True)) if tokens else b"(?!)"
        self.behind, self.token = re.compile(rb"\s*" + token), re.compile(token)

    def faults(self, messages, answer):
        if "unsure" in answer:
            return
        text, out = answer["text"].encode(), trained(answer["text"].encode(), answer["spans"])
        at, places = 0, []
        for m in messages:
            words = m["content"].encode()
            if not words:  # a call of a tool alone
                continue
            found = text.find(words, at)
            if found < 0:
                if m["role"] == "assistant":
                    yield "a content of the assistant is not written"
                continue
            places.append((m["role"], found, found + len(words)))
            at = found + len(words) if m["role"] != "system" else at
        for k, (role, begin, end) in enumerate(places):
            if role != "assistant":
                if any(out[begin:end]):
                    yield "a content of the " + role + " is trained on"
                continue
            if not all(out[begin:end]):
                yield "a content of the assistant is not trained on"
            after = next((p[1] for p in places[k + 1:] if p[1] >= end), len(text))
            tail = text[end:end + (out[end:after] + b"\0").index(0)]
            behind = self.behind.match(text, end, after)
            if behind and len(tail) < behind.end() - end:
                yield "the token %s right after an answer is not trained on" % behind[0].decode()
            if self.token.search(tail) and self.token.sub(b"", tail).strip():
                yield "more than tokens is trained on behind an answer: %r" % tail
            if not behind and after < len(text) and self.token.search(tail):
                yield "a token that does not stand right after an answer is trained on: %r" % tail


def variables(template):
    """Begin and end tokens: each of the template's own special tokens beside the usual other one, and beside itself."""
    own = list(dict.fromkeys(LITERAL.findall(template)))
    for bos, eos in [("<s>", "</s>"), *((t, "</s>") for t in own), *(("<s>", t) for t in own), *((t, t) for t in own)]:
        yield own, {"bos_token": bos, "eos_token": eos, "pad_token": "<pad>"}


def texts_in(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.jinja")):
        yield path.name, path.read_text()
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        text = path.read_text(errors="replace")
        if "add_generation_prompt" in text and "{%" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "{%" in node.value and "messages" in node.value:
                    yield path.name, node.value


def main():
    source, stride, folders = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    renderer, count, shown = load(source), collections.Counter(), 0
    templates = dict.fromkeys((name, text) for folder in folders for name, text in texts_in(folder)) if folders else OWN.items()
    n = 0
    for name, template in templates:
        count["templates"] += 1
        for own, given in variables(template):
            tokens = {*own, given["bos_token"], given["eos_token"]}
            for about, messages, tools in talks():
                n += 1
                if n % stride:
                    continue
                try:
                    r = renderer({"template": template, "variables": given, "date": "2024-07-26", "special": sorted(tokens)})
                    r.most = 1 << 24
                    answer = r.answer({"messages": messages, "tools": tools or None, "prompt": False})
                except Exception:
                    count["refused"] += 1
                    continue
                count["unsure" if "unsure" in answer else "renderings"] += 1
                for fault in Check(tokens).faults(messages, answer):
                    count["faults"] += 1
                    shown += 1
                    if shown <= 20:
                        print(f"{name}: begin {given['bos_token']}, end {given['eos_token']}, {about}: {fault}\n"
                              f"  {answer['text']!r}\n  {answer['spans']}")
    print(", ".join(f"{count[k]} {k}" for k in ("templates", "renderings", "refused", "unsure", "faults")))
    sys.exit(count["faults"] > 0 or not count["renderings"])


main()
