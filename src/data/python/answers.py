"""What the assistant wrote in the text of a chat template that renders answers in another way once more messages follow:
the conversation is rendered again with marks instead of texts. Part of the program jinja.py, which it stands before."""

import json
import re

TAG = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\]|\[\|[^\[\]\s]+\|\])"  # a special token, as templates write them
END = re.compile(TAG + r"\s+$")  # the token that ends an answer, and what templates write after it
THINK = re.compile(r"<think>\s*$")
PROMPTED = re.compile(r"<think>\s*(</think>\s*)?$")  # reasoning that a generation prompt begins, or leaves out
REASONING = ("reasoning_content", "thinking", "reasoning")


def attempt(f, *arguments):
    """The result or an error. Running out of memory ends the request."""
    try:
        return f(*arguments), None
    except MemoryError:
        raise
    except Exception as error:
        return None, error


def opening(text, bos):
    """The token that opens messages: the first one of a text."""
    tag = re.search(TAG, text[len(bos):] if text.startswith(bos) else text)
    return tag and tag[0]


def epilogue(text, before, opens):
    """What a template writes after all messages, if these are tokens that open one. `before`: a text of fewer messages."""
    end = before[before.rfind(opens):] if opens and opens in before else ""
    return end if end and text.endswith(end) and re.fullmatch("(%s\\s*)+" % TAG, end) else ""


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
                raise ValueError("message %d: the template leaves it out" % (i + 1))

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
        self.marked, self.messages = places.marked, places.marks.messages
        self.own = places.own.get(i, [])  # its marks
        later = [at for word, at, _ in places.pieces if places.marks.of[word][0] > i]
        most = self.own[0][0] if self.own else min(later, default=len(self.marked))
        before = [(at, word) for word, at, _ in places.pieces if at < most]
        self.word = before[-1][1] if before else ""  # the mark before it
        self.base = before[-1][0] + len(self.word) if before else 0
        self.opens = opening(self.marked, renderer.token("bos_token"))

    def tail(self, messages, prompt, word):
        """What a rendering has after this mark; None: the template refuses it, or the mark is not in it."""
        text, error = attempt(self.renderer.render, messages, self.tools, prompt)
        return None if error or word not in text else text.rpartition(word)[2] if word else text

    def after(self, head, most):
        """The place after this text, which follows the mark before; None: another one does, or more than up to `most`."""
        end = self.base + len(head)
        return end if end <= most and self.marked.startswith(head, self.base) else None

    def begin(self):
        """After the generation prompt. Where the text has another one, at the first mark."""
        first = self.own[0][0] if self.own else len(self.marked)
        prompt, plain = (self.tail(self.messages[:self.i], p, self.word) for p in (True, False))
        if prompt is not None and (prompt != plain or epilogue(self.marked, plain, self.opens)):
            for head in (prompt, PROMPTED.sub("", prompt)):
                if self.after(head, first) is not None:
                    return self.after(head, first)
        kind = self.places.marks.of[self.own[0][1]][1] if self.own else None
        head = self.marked[self.base:first]
        tag = THINK.search(head) if kind == "reasoning" else None
        if kind in ("reasoning", "content"):
            return self.base + tag.start() if tag else self.base + len(head.rstrip(" ")) if prompt == plain else first
        return self.begin_as_content(first)

    def begin_as_content(self, first):
        """Where the message would begin if it had a content alone."""
        stem = self.places.marks.stem
        for rest in (self.messages[self.i + 1:], []):
            text = self.tail([*self.messages[:self.i], {"role": "assistant", "content": stem}, *rest], False, self.word) or ""
            for head in (text.partition(stem)[0], text.partition(stem)[0].rstrip()) if stem in text else ():
                if self.after(head, first) is not None:
                    return self.after(head, first)
        raise ValueError("message %d: nothing shows where it begins" % (self.i + 1))

    def end(self, begin):
        """After the text of the messages up to this one, or after tokens that stand before the next message."""
        at, word = self.last()
        start, eos = max(at, begin), self.renderer.token("eos_token")
        tail = self.marked[at:] if self.i + 1 == len(self.messages) else self.tail(self.messages[:self.i + 1], False, word)
        if tail is not None and self.marked.startswith(tail[:start - at], at):
            tail = tail[start - at:].partition(self.opens)[0] if self.opens else tail[start - at:]
            for t in (tail, tail[:-len(eos)] if eos and tail.endswith(eos) else tail):
                if self.marked.startswith(t, start):
                    return start + ended(t)
        tags = re.compile(r"(\s*%s)+?(?=\s*%s)" % (TAG, re.escape(self.opens or " ^"))).match(self.marked, start)
        if not tags:
            raise ValueError("message %d: nothing shows where it ends" % (self.i + 1))
        return tags.end()

    def last(self):
        """The place after its last mark, and that mark."""
        return (self.own[-1][0] + len(self.own[-1][1]), self.own[-1][1]) if self.own else (self.base, self.word)

    def found(self, what, find, place, neighbor, mark):
        """What `find` finds, as a distance from a place. Where the same text follows marks of the same kinds, it is the same."""
        role = self.messages[neighbor].get("role") if 0 <= neighbor < len(self.messages) else None
        passed = self.i - (self.places.marks.of[self.word][0] if self.word else -1)  # messages since the mark before
        key = what, role, passed, mark and self.places.marks.of[mark][1], self.places.gap(place)
        if key not in self.places.found:
            self.places.found[key] = find() - place
        return place + self.places.found[key]

    def span(self):
        first, (at, word) = self.own[0][1] if self.own else None, self.last()
        begin = self.found("begin", self.begin, self.base, self.i - 1, first)
        end = self.found("end", lambda: self.end(begin), at, self.i + 1, first and word)
        inside = self.places.marks.form.finditer(self.marked, begin, end)
        if any(self.places.marks.of[m[0]][1] == "other" for m in inside):
            raise ValueError("message %d: the template writes another message inside it" % (self.i + 1))
        return self.places.in_text(begin), self.places.in_text(end)


def in_order(spans):
    for (_, end), (begin, _) in zip(spans, spans[1:]):
        if begin < end:
            raise ValueError("answers overlap")
    return spans


def ended(text):
    """The length of an answer's end without the white space that a template writes after the last token."""
    return len(text.rstrip()) if END.search(text) else len(text)
