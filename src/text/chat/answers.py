"""What the assistant wrote in the text of a chat template that renders answers in another way once more messages follow:
the conversation is rendered again with marks instead of texts. Part of the program jinja.py, which it stands before."""

import json
import os
import re

TAG = r"<[^<>\s]+>|\[/?[A-Z_]+\]|\[\|[^\[\]\s]+\|\]"  # a special token, as templates write them
THINK = re.compile(r"<think>\s*$")
PROMPTED = re.compile(r"<think>\s*(</think>\s*)?$")  # reasoning that a generation prompt begins, or leaves out
LEFT_OUT = 'message %d: the template leaves it out; it may expect a list, {"content": [{"type": "text", "text": ...}]}'
REASONING = ("reasoning_content", "thinking", "reasoning")


def attempt(f, *arguments):
    """The result or an error. Running out of memory ends the request."""
    try:
        return f(*arguments), None
    except MemoryError:
        raise
    except Exception as error:
        return None, error


class Tokens:
    """The special tokens of a template: those that the tokenizer has, and what looks like one."""

    def __init__(self, known):
        self.known = set(known)
        others = [re.escape(t) for t in sorted(self.known, key=len, reverse=True) if t and not re.fullmatch(TAG, t)]
        one = "|".join([*others, TAG])
        self.one, self.next, self.last = (re.compile(form % one) for form in ("%s", r"\s*(?:%s)", r"(?:%s)\s+$"))

    def behind(self, text, at=0, known=True):
        """The token right after a place, if the tokenizer has it, or whether it does (known False); None: there is none."""
        found = self.next.match(text, at)
        return found if found and (not known or found[0].strip() in self.known) else None

    def closed(self, text):
        """A text without the white space after the token that ends it."""
        return text.rstrip() if self.last.search(text) else text

    def shared(self, a, b):
        """What two texts begin with, up to the end of a token."""
        n = len(os.path.commonprefix((a, b)))
        return a[:next((m.start() for text in (a, b) for m in self.one.finditer(text) if m.start() < n < m.end()), n)]


def as_written(text):
    """A text, and what templates make of one."""
    trimmed = [trim(text, white) for white in (None, "\n") for trim in (str.strip, str.lstrip, str.rstrip)]
    quoted = [json.dumps(text, ensure_ascii=a)[1:-1] for a in (False, True)]
    return dict.fromkeys([text, *trimmed, *quoted])


class Marks:
    """Conversations with words, the marks, instead of texts. A mark occurs nowhere else."""

    def __init__(self, messages, text, kept, empty):
        """`kept`: roles whose texts stay; `empty`: whether empty texts also get a mark."""
        taken, n = json.dumps(messages, ensure_ascii=False) + text, 0
        while "zq%dx" % n in taken:
            n += 1
        self.stem, self.empty = "zq%dx" % n, empty
        self.form = re.compile(self.stem + r"\d+e")
        self.of = {}  # mark: (number of the message, content, reasoning, call or other, the text)
        self.messages = [m if m.get("role") in kept else self.replaced(i, m) for i, m in enumerate(messages)]

    def mark(self, i, kind, text):
        word = "%s%de" % (self.stem, len(self.of))
        self.of[word] = i, kind, text
        return word

    def replaced(self, i, message):
        out = dict(message)
        content, thoughts, calls = (message.get(k) for k in ("content", "reasoning_content", "tool_calls"))
        text = self.answer if message.get("role") == "assistant" else self.other
        if isinstance(thoughts, str) and thoughts.strip():
            word = self.mark(i, "reasoning", thoughts)
            out |= {k: word for k in REASONING if message.get(k) == thoughts}
        if isinstance(content, str):
            out["content"] = text(i, content, calls)
        elif isinstance(content, list):
            out["content"] = [{**p, "text": text(i, p["text"], calls)} if isinstance(p, dict) and isinstance(p.get("text"), str)
                              else p for p in content]
        if isinstance(calls, list):
            out["tool_calls"] = [self.call(i, c) for c in calls]
        return out

    def other(self, i, text, calls):
        return self.mark(i, "other", text) if text.strip() or self.empty else text

    def answer(self, i, text, calls):
        """Reasoning may come first."""
        head, tag, body = text.rpartition("</think>")
        start, begins, thoughts = head.rpartition("<think>")
        if tag and thoughts.strip():
            head = start + begins + self.mark(i, "reasoning", thoughts)
        return head + tag + (self.mark(i, "content", body) if body.strip() or (self.empty and not calls) else body)

    def call(self, i, call):
        f = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(f, dict) or not isinstance(f.get("name"), str):
            return call
        f = {**f, "name": self.mark(i, "call", f["name"])}
        return {**call, "function": f} if "function" in call else f


class Places:
    """A text with marks, and where these are in the text that they must make when their texts are put back."""

    def __init__(self, marks, marked, text):
        self.marks, self.marked, self.text = marks, marked, text
        self.found = {}  # see Answer.found
        self.check_counts()
        self.pieces = self.put_back()
        self.own = {}  # message: [place, mark] of what its assistant wrote, the first of each mark
        for word, at, _ in self.pieces:
            i, kind, _ = marks.of[word]
            if kind != "other" and word not in (w for _, w in self.own.get(i, ())):
                if i < max(self.own, default=0):
                    raise ValueError("message %d: the template writes it after later ones" % (i + 1))
                self.own.setdefault(i, []).append((at, word))

    def check_counts(self):
        words = self.marks.form.findall(self.marked)
        calling = {i for i, kind, _ in self.marks.of.values() if kind == "call"}
        for word, (i, kind, _) in self.marks.of.items():
            n = words.count(word)
            if n > 1 and kind in ("content", "reasoning"):
                raise ValueError("message %d: the template writes it more than once" % (i + 1))
            if n == 0 and kind == "content" and i not in calling:
                raise ValueError(LEFT_OUT % (i + 1))

    def put_back(self):
        """[mark, its place in `marked`, its end in `text`], in order."""
        at, ends, steps = 0, {0: None}, []  # ends: where the text so far may end, and where it ended at the mark before
        for m in self.marks.form.finditer(self.marked):
            frame, parts, after = self.marked[at:m.start()], as_written(self.marks.of[m[0]][2]), {}
            for end in ends:
                for part in parts if self.text.startswith(frame, end) else ():
                    if self.text.startswith(part, end + len(frame)):
                        after.setdefault(end + len(frame) + len(part), end)
            steps.append((m[0], m.start(), after))
            ends, at = after, m.end()
        end = len(self.text) - len(self.marked) + at
        if end not in ends or self.text[end:] != self.marked[at:]:
            raise ValueError("the template depends on what is in the messages")
        pieces = []
        for word, place, after in reversed(steps):
            pieces.append((word, place, end))
            end = after[end]
        return pieces[::-1]

    def start(self):
        """Where the first mark is."""
        return self.pieces[0][1] if self.pieces else len(self.marked)

    def gap(self, place):
        """The text from a place up to the next mark."""
        mark = self.marks.form.search(self.marked, place)
        return self.marked[place:mark.start() if mark else None]

    def in_text(self, place):
        """A place between marks."""
        shift = 0
        for word, at, end in self.pieces:
            if at + len(word) > place:
                break
            shift = end - at - len(word)
        return place + shift


class Answer:
    """Message i of the assistant in a text with marks, compared with renderings of the messages before it and up to it."""

    def __init__(self, renderer, places, i, tools):
        self.renderer, self.places, self.i, self.tools = renderer, places, i, tools
        self.marked, self.messages, self.tokens = places.marked, places.marks.messages, renderer.tokens
        self.own = places.own.get(i, [])  # its marks
        later = [at for word, at, _ in places.pieces if places.marks.of[word][0] > i]
        most = self.own[0][0] if self.own else min(later, default=len(self.marked))
        before = [(at, word) for word, at, _ in places.pieces if at < most]
        self.word = before[-1][1] if before else ""  # the mark before it
        self.base = before[-1][0] + len(self.word) if before else 0

    def tail(self, messages, prompt, word):
        """What a rendering has after this mark; None: the template refuses it, or the mark is not in it."""
        text, error = attempt(self.renderer.render, messages, self.tools, prompt)
        return None if error or word not in text else text.rpartition(word)[2] if word else text

    def tails_before(self):
        """Of the messages before this one, with a generation prompt and without."""
        return [self.tail(self.messages[:self.i], p, self.word) for p in (True, False)]

    def after(self, head, most):
        """The place after this text, which follows the mark before; None: another one does, or more than up to `most`."""
        end = self.base + len(head)
        return end if end <= most and self.marked.startswith(head, self.base) else None

    def first(self):
        return self.own[0][0] if self.own else len(self.marked)

    def prompt_always(self):
        """The generation prompt that the template writes after all messages although none is wanted; empty: it does not. It
        begins with the token that opens messages: the first of the text or, behind a begin token, the second."""
        plain, first = self.tails_before()[1] or "", self.tokens.one.finditer(self.marked, 0, self.places.start())
        opens = [m[0] for m, _ in zip(first, range(2))]
        ends = [plain[max(plain.rfind(t), 0):] for t in opens[:1 + (opens[:1] == [self.renderer.token("bos_token")])] if t in plain]
        return max((end for end in ends if self.marked.endswith(end)), key=len, default="")

    def without_prompt(self, alone):
        """What stands behind an answer, less a prompt that the template always writes. Its first token is no part of that."""
        always, first = self.prompt_always(), self.tokens.one.search(alone)
        return alone[:-len(always)] if always and first and alone.endswith(always, first.end()) else alone

    def begin(self):
        """After the generation prompt. Where the text has another one, at the first mark."""
        first, (prompt, plain) = self.first(), self.tails_before()
        if prompt is not None and (prompt != plain or self.prompt_always()):
            for head in (prompt, PROMPTED.sub("", prompt)):
                if self.after(head, first) is not None:
                    return self.after(head, first)
        kind = self.kind(self.own[0][1]) if self.own else None
        head = self.marked[self.base:first]
        tag = THINK.search(head) if kind == "reasoning" else None
        if kind not in ("reasoning", "content"):
            return self.begin_as_content(first)
        if tag:
            return self.base + tag.start()
        return max(self.base + len(head.rstrip(" ")), self.after(plain or "", first) or 0) if prompt == plain else first

    def begin_as_content(self, first):
        """Where the message would begin if it had a content alone."""
        stem = self.places.marks.stem
        for rest in (self.messages[self.i + 1:], []):
            text = self.tail([*self.messages[:self.i], {"role": "assistant", "content": stem}, *rest], False, self.word) or ""
            for head in (text.partition(stem)[0], text.partition(stem)[0].rstrip()) if stem in text else ():
                if self.after(head, first) is not None:
                    return self.after(head, first)
        raise ValueError("message %d: nothing shows where it begins" % (self.i + 1))

    def kind(self, word):
        return self.places.marks.of[word][1]

    def end(self, begin):
        """After what stands behind its words, less what the template writes after all messages; where a message follows, only
        as far as the text does so that ends with this one. If that has no special token, after the one right after it."""
        at, word = self.last()
        skip, text, alone = max(begin - at, 0), self.places.gap(at), self.places.gap(at)
        if self.i + 1 < len(self.messages):
            alone = self.tail(self.messages[:self.i + 1], False, word) or ""
        end = self.tokens.shared(text, self.without_prompt(alone))
        end = text[:skip] + self.tokens.closed(end[skip:])
        plain = self.own and self.kind(word) != "call"  # what has a token is one that ends the answer
        return at + len(end if self.tokens.one.search(end, skip) and plain else self.with_token(end, skip, text))

    def with_token(self, end, skip, text):
        """An end with the token right after it, unless it has one: where the template ends a content with a token, also
        where no message follows, then any; else one that the tokenizer has. `skip`: characters before the answer."""
        stem = self.places.marks.stem
        alone = self.tail([*self.messages[:self.i], {"role": "assistant", "content": stem}], False, stem) or ""
        closed = self.tokens.behind(alone, known=False)
        if closed and self.tokens.one.search(end, skip):
            return end
        behind = self.tokens.behind(text, len(end), known=not closed)
        return text[:behind.end()] if behind else end

    def last(self):
        """The place after its last mark, and that mark. The name of a called tool may stand in an answer more than once, and
        again in that of the tool."""
        if not self.own:
            return self.base, self.word
        at, word = self.own[-1]
        if self.kind(word) == "call":
            text, _ = attempt(self.renderer.render, self.messages[:self.i + 1], self.tools, False)
            places = [p for w, p, _ in self.places.pieces if w == word]
            at = places[min(max((text or "").count(word), 1), len(places)) - 1]
        return at + len(word), word

    def found(self, what, find, place, neighbor, mark):
        """What `find` finds, as a distance from a place. Where the same text follows marks of the same kinds, it is the same."""
        role = self.messages[neighbor].get("role") if 0 <= neighbor < len(self.messages) else None
        passed = self.i - (self.places.marks.of[self.word][0] if self.word else -1)  # messages since the mark before
        key = what, role, passed, mark and self.kind(mark), self.places.gap(place)
        if key not in self.places.found:
            self.places.found[key] = find() - place
        return place + self.places.found[key]

    def span(self):
        first, (at, word) = self.own[0][1] if self.own else None, self.last()
        begin = self.found("begin", self.begin, self.base, self.i - 1, first)
        end = self.found("end", lambda: self.end(begin), at, self.i + 1, first and word)
        self.check(begin, end, at)
        return self.places.in_text(begin), self.places.in_text(end)

    def check(self, begin, end, at):
        """All words of the answer are in its span, with the special token right after them, and no other message's."""
        who, behind = "message %d: " % (self.i + 1), self.tokens.behind(self.marked, at)
        if self.own and not (begin <= self.own[0][0] and at <= end):
            raise ValueError(who + "it is not whole in what the template has for it")
        if self.own and behind and end < behind.end():
            raise ValueError(who + "the token %s right after it belongs to what follows" % behind[0].strip())
        inside = self.places.marks.form.finditer(self.marked, begin, end)
        if any(self.kind(m[0]) == "other" for m in inside):
            raise ValueError(who + "the template writes another message inside it")


def check_written(messages, text):
    """Of a template that marks by itself what the assistant writes: the contents are in the text."""
    for i, m in enumerate(messages):
        words = m["content"].rpartition("</think>")[2].strip() if isinstance(m.get("content"), str) else ""
        if m.get("role") == "assistant" and not m.get("tool_calls") and not any(form in text for form in as_written(words)):
            raise ValueError(LEFT_OUT % (i + 1))


def in_order(spans):
    for (_, end), (begin, _) in zip(spans, spans[1:]):
        if begin < end:
            raise ValueError("answers overlap")
    return spans
