"""Renders chat templates with Jinja, as transformers does (apply_chat_template). Requests and answers are JSON, each after
8 bytes with its length. The first request has the template, its variables (special tokens) and the date; the others have a
conversation each. src/data/corpus/jinja.c sends them."""

import datetime
import json
import os
import re
import resource
import struct
import sys

try:
    import jinja2
    import jinja2.debug
    import jinja2.ext
    import jinja2.sandbox
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

CPU_SECONDS = 10
MEMORY = 1 << 29  # besides 60 bytes for each of a request
TEXT = 1 << 24  # the most characters of a text, besides 100 for each of a request
TAG = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\]|\[\|[^\[\]\s]+\|\])"  # a special token, as templates write them
END = re.compile(TAG + r"\s+$")  # the token that ends an answer, and what templates write after it
THINK = re.compile(r"<think>\s*$")
PROMPTED = re.compile(r"<think>\s*(</think>\s*)?$")  # reasoning that a generation prompt begins, or leaves out
REASONING = ("reasoning_content", "thinking", "reasoning")
MARK = "\U0010fffe%s\U0010fffe"  # encloses what a {% generation %} block writes, in a second rendering


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: what the assistant writes."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(generation_marked=False)

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        text = caller()
        return MARK % text if self.environment.generation_marked else text


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(date):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = datetime.datetime.fromisoformat(date).strftime
    return env


def is_patched():
    """Versions below 3.1.6 let a template leave the sandbox; Debian patches them without a new version number."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment()
    env.filters["call"] = lambda f, x: f(x)
    for text in ("{{ '{0.__class__}'.format | call(x) }}", "{{ ('{0.__class__}' | attr('format'))(x) }}"):
        try:
            if "class" in env.from_string(text).render(x=raise_exception):
                return False
        except Exception:
            pass
    return True


def with_reasoning(message):
    """transformers gives templates the newer name of a chain of thought besides its older ones."""
    thoughts = next((message[k] for k in REASONING if message.get(k) is not None), None)
    return message if thoughts is None else {"thinking": thoughts, **message, "reasoning_content": thoughts}


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
        """`kept`: roles whose texts stay; `empty`: whether empty texts get a mark, too."""
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
        self.prompt, self.plain = (self.tail(self.messages[:i], p, self.word) for p in (True, False))
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
        if self.prompt is not None and (self.prompt != self.plain or epilogue(self.marked, self.plain, self.opens)):
            for head in (self.prompt, PROMPTED.sub("", self.prompt)):
                if self.after(head, first) is not None:
                    return self.after(head, first)
        kind = self.places.marks.of[self.own[0][1]][1] if self.own else None
        head = self.marked[self.base:first]
        tag = THINK.search(head) if kind == "reasoning" else None
        if kind in ("reasoning", "content"):
            return self.base + tag.start() if tag else self.base + len(head.rstrip(" ")) if self.prompt == self.plain else first
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
        at, word = (self.own[-1][0] + len(self.own[-1][1]), self.own[-1][1]) if self.own else (self.base, self.word)
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

    def span(self):
        begin = self.begin()
        end = self.end(begin)
        inside = self.places.marks.form.finditer(self.marked, begin, end)
        if any(self.places.marks.of[m[0]][1] == "other" for m in inside):
            raise ValueError("message %d: the template writes another message inside it" % (self.i + 1))
        return self.places.in_text(begin), self.places.in_text(end)


def ended(text):
    """The length of an answer's end without the white space that a template writes after the last token."""
    return len(text.rstrip()) if END.search(text) else len(text)


class Renderer:
    def __init__(self, request):
        self.env = environment(request["date"])
        self.template = self.env.from_string(request["template"])
        self.variables = request["variables"]

    def token(self, name):
        return self.variables.get(name) or ""

    def render(self, messages, tools, prompt, marked=False):
        self.env.generation_marked = marked
        parts, length = [], 0
        for part in self.template.generate(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                                           **self.variables):
            parts.append(part)
            length += len(part)
            if length > self.most:
                raise MemoryError("more than %d characters of text" % self.most)
        return "".join(parts)

    def marked_spans(self, messages, tools, text):
        """Of blocks {% generation %}, in characters; None: the template has none."""
        pieces = self.render(messages, tools, False, True).split("\U0010fffe")
        if len(pieces) == 1:
            return None
        if "".join(pieces) != text or len(pieces) % 2 == 0:
            raise ValueError("what the template's {% generation %} blocks write is changed after them")
        spans, at = [], 0
        for i, piece in enumerate(pieces):
            if i % 2:
                spans.append((at, at + len(piece)))
            at += len(piece)
        return spans

    def starts_with_answer(self, messages, tools, before):
        """Whether an answer after this text has nothing before its content."""
        text = self.render([*messages, {"role": "assistant", "content": "answer"}], tools, False)
        return text[len(before):].lstrip().startswith("answer")

    def beginning(self, messages, tools, text):
        """The text of the first messages in that of all. Phi-3's template writes the end token after the last message only."""
        part, end = self.render(messages, tools, False), self.token("eos_token")
        return part[:-len(end)] if end and part.endswith(end) and not text.startswith(part) else part

    def prefix_spans(self, messages, tools, text):
        """An answer starts where the text of the messages before it ends, with a prompt, and ends where its own text does."""
        spans = []
        for i, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            plain, before = self.beginning(messages[:i], tools, text), self.render(messages[:i], tools, True)
            after = text if i + 1 == len(messages) else self.beginning(messages[:i + 1], tools, text)
            after = after[:len(after) - len(epilogue(after, plain, opening(text, self.token("bos_token"))))]
            for part, name in ((plain, "before the answer"), (before, "before the answer, with a generation prompt,"),
                               (after, "up to the answer")):
                if not text.startswith(part):
                    raise ValueError("message %d: the text of the messages %s is not how the whole text begins"
                                     % (i + 1, name))
            if plain == before and not self.starts_with_answer(messages[:i], tools, before):
                raise ValueError("message %d: the template has no generation prompt, and writes something of its own before "
                                 "the answer" % (i + 1))
            if len(before) > len(after):
                raise ValueError("message %d: the generation prompt has more than the answer" % (i + 1))
            spans.append((len(before), len(before) + ended(after[len(before):])))
        return spans

    def content_spans(self, messages, tools, text):
        """By a rendering with marks, of which the text must follow."""
        for kept in ((), ("system", "user")):
            for empty in (True, False):
                marks = Marks(messages, text, kept, empty)
                places, error = attempt(lambda: Places(marks, self.render(marks.messages, tools, False), text))
                if not error:
                    own = [i for i, m in enumerate(messages) if m.get("role") == "assistant"]
                    return [Answer(self, places, i, tools).span() for i in own]
        raise error

    def answer(self, request):
        messages, tools = [with_reasoning(m) for m in request["messages"]], request.get("tools")
        text = self.render(messages, tools, request["prompt"])
        if request["prompt"]:
            return {"text": text}
        spans, error = attempt(self.marked_spans, messages, tools, text)
        if spans is None and not error:
            spans, error = attempt(self.prefix_spans, messages, tools, text)
            if error:
                spans, error = attempt(self.content_spans, messages, tools, text)
        if error:
            return {"text": text, "unsure": describe(error)}
        places, at, done = [], 0, 0
        for place in sorted({p for span in spans for p in span}):
            done += len(text[at:place].encode())
            at = place
            places.append((place, done))
        where = dict(places)
        return {"text": text, "spans": [[where[a], where[b]] for a, b in spans if a < b]}


def describe(error):
    text = str(error).strip().split("\n")[0][:400]
    line = getattr(error, "lineno", None)
    kind = "" if isinstance(error, (ValueError, jinja2.exceptions.TemplateError)) and text else type(error).__name__
    return (kind + (": " if kind and text else "") + text) + (" (line %d of the template)" % line if line else "")


def limit(length):
    """For one request. The process is killed by SIGXCPU when its time is up, also if this one is dead."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    lower_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS)
    lower_limit(resource.RLIMIT_AS, MEMORY + 60 * length)


def read(stream):
    head = stream.read(8)
    if len(head) < 8:
        sys.exit(0)
    data = stream.read(struct.unpack("<Q", head)[0])
    limit(len(data))
    return json.loads(data), len(data)


def write(stream, answer):
    data = json.dumps(answer).encode()
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def main():
    stdin, stdout, renderer = sys.stdin.buffer, sys.stdout.buffer, None
    if version_of(jinja2) < (3, 1, 6) and not is_patched():
        answer = {"error": "Jinja %s (%s) lets a template leave its sandbox; install 3.1.6 or newer, or Debian's "
                           "python3-jinja2, which is patched" % (jinja2.__version__, os.path.dirname(jinja2.__file__))}
        read(stdin)
        write(stdout, answer)
        sys.exit(0)
    os.umask(0o077)
    guard()
    while True:
        request, length = read(stdin)
        try:
            if renderer is None:
                renderer = Renderer(request)
                answer = {"engine": "jinja " + jinja2.__version__}
            else:
                renderer.most = TEXT + 100 * length
                answer = renderer.answer(request)
        except MemoryError as error:
            answer = {"error": "it needs too much memory: " + (str(error) or "more than %d MiB"
                                                               % (MEMORY + 60 * length >> 20))}
        except Exception as error:
            answer = {"error": describe(error)}
        write(stdout, answer)


main()
