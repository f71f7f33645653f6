"""Renders chat templates with Jinja, as transformers does (apply_chat_template). Requests and answers are JSON, each after
8 bytes with its length. The first request has the template, its variables (special tokens) and the date; the others have a
conversation each. src/text/chat/jinja.c sends them. answers.py stands before this program."""

import datetime
import json
import os
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


def with_arguments(message):
    """Those of calls as objects, which is what templates are given; data may have them as texts of JSON."""
    def typed(call):
        if isinstance(call.get("function"), dict):
            call = {**call, "function": typed(call["function"])}
        text = call.get("arguments")
        return {**call, "arguments": json.loads(text)} if isinstance(text, str) else call
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [typed(c) for c in calls]} if calls else message


class Renderer:
    def __init__(self, request):
        self.env = environment(request["date"])
        self.template = self.env.from_string(request["template"])
        self.variables = request["variables"]
        self.tokens = Tokens([*request.get("special", ()), *(v for v in self.variables.values() if isinstance(v, str))])

    documents, own = None, {}  # of the conversation: what it may quote, and its own variables

    def token(self, name):
        return self.variables.get(name) or ""

    def render(self, messages, tools, prompt, marked=False):
        self.env.generation_marked = marked
        parts, length = [], 0
        for part in self.template.generate(**{**self.variables, **self.own}, messages=messages, tools=tools,
                                           documents=self.documents, add_generation_prompt=prompt):
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
        check_written(messages, text)
        spans, at = [], 0
        for i, piece in enumerate(pieces):
            if i % 2:
                spans.append((at, at + len(piece)))
            at += len(piece)
        return spans

    def content_spans(self, messages, tools, text):
        """By a rendering with marks, of which the text must follow."""
        for kept in ((), ("system", "user")):
            for empty in (True, False):
                marks = Marks(messages, text, kept, empty)
                places, error = attempt(lambda: Places(marks, self.render(marks.messages, tools, False), text))
                if not error:
                    own = [i for i, m in enumerate(messages) if m.get("role") == "assistant"]
                    return in_order([Answer(self, places, i, tools).span() for i in own])
        raise error

    def answer(self, request):
        given, tools = [with_reasoning(m) for m in request["messages"]], request.get("tools")
        self.documents, self.own = request.get("documents"), request.get("variables") or {}
        messages = [with_arguments(m) for m in given]
        text, error = attempt(self.render, messages, tools, request["prompt"])
        if isinstance(error, TypeError) and messages != given:  # a template that wants texts
            messages, error = given, None
            text = self.render(messages, tools, request["prompt"])
        if error:
            raise error
        if request["prompt"]:
            return {"text": text}
        spans, error = attempt(self.marked_spans, messages, tools, text)
        if spans is None and not error:
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


if __name__ == "__main__":
    main()
