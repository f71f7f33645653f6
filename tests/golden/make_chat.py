"""Makes chat/expected.jsonl: what transformers renders with published chat templates. README.md says what is in the file.

    pip download --no-deps trl==1.16.0 unsloth==2026.10.9 alignment-handbook==0.3.0 axolotl==0.19.0
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.16
    python make_chat.py FOLDER_OF_THESE_PACKAGES

The packages are only read: they contain the texts of templates as the models publish them.
"""

import ast
import ctypes
import datetime
import json
import pathlib
import re
import sys
import tarfile
import zipfile

import jinja2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent / "chat"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 4)


chat_template_utils.datetime = Clock  # templates may write today's date

xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64


def hash64(data):
    return f"{xxhash.XXH3_64bits(data, ctypes.c_size_t(len(data))):016x}"


# ---- the texts ----

def wheel(folder, package, path):
    with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as z:
        return z.read(path).decode()


def llama_cpp(folder, path):
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as t:
        member = next(m for m in t if m.name.endswith(f"vendor/llama.cpp/{path}"))
        return t.extractfile(member).read().decode()


def constant(source, name):
    """The value of a string assigned to a name in Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


def tested(source, name):
    """The template of that name in llama.cpp's test, a C string."""
    match = re.search(r'name= \*/ "' + re.escape(name) + r'.*?template_str= \*/ ("(?:[^"\\]|\\.)*")', source, re.S)
    return ast.literal_eval(match[1])


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
          "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
DEFINED = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"


def both_breaks(text):
    """Line breaks in strings are written as an escape or as a line break."""
    return [text, text.replace("\\n", "\n")]


def texts_of(folder):
    trl = lambda name: wheel(folder, "trl", f"trl/chat_templates/{name}.jinja")
    published = lambda name: llama_cpp(folder, f"models/templates/{name}.jinja")
    test = llama_cpp(folder, "tests/test-chat-template.cpp")
    zephyr = constant(wheel(folder, "alignment_handbook", "alignment/data.py"), "DEFAULT_CHAT_TEMPLATE")
    axolotl = lambda name: wheel(folder, "axolotl", f"axolotl/utils/chat_templates/templates/{name}.jinja")
    nemo = tested(test, "Mistral-Nemo-Instruct-2407")
    assert nemo.strip() == published("mistralai-Mistral-Nemo-Instruct-2407").strip(), "the test changes its templates"
    return {
        "chatml": [*both_breaks(CHATML), *both_breaks(DEFINED + CHATML), axolotl("chatml")],
        "chatml-bos": both_breaks("{{ bos_token }}" + CHATML),
        "llama3": [trl("llama3")],
        "llama3.1": [trl("llama3_1"), published("meta-llama-Llama-3.1-8B-Instruct"),
                     published("meta-llama-Llama-3.3-70B-Instruct")],
        "llama3.2": [trl("llama3_2"), published("meta-llama-Llama-3.2-3B-Instruct")],
        "gemma2": [trl("gemma"), published("google-gemma-2-2b-it")],
        "gemma3": [trl("gemma3")],
        "mistral-v0.1": [tested(test, "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1'")],
        "mistral-v0.3": [tested(test, "Mistral-Large-Instruct-2407")],
        "mistral-nemo": [nemo],
        "phi3": [trl("phi3")],
        "phi3.5": [trl("phi3_5"), published("microsoft-Phi-3.5-mini-instruct")],
        "phi4": [constant(wheel(folder, "unsloth", "unsloth/chat_templates.py"), "phi4_template")],
        "qwen2": [axolotl("qwen2_vl")],
        "qwen3.5": [axolotl("qwen3_5")],
        "gemma4": [axolotl("gemma4")],
        "phi3-bos": [axolotl("phi_3")],
        "zephyr": [zephyr, zephyr.replace("\n' +", "\\n' +")],
    }


# The tokens, what the assistant writes before and after its content, and whether the template strips contents (None: it
# rewrites them).
TEMPLATES = {
    "chatml": ("<s>", "</s>", "", "<|im_end|>", False),
    "chatml-bos": ("<s>", "</s>", "", "<|im_end|>", False),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", "", "<|eot_id|>", True),
    "llama3.1": ("<|begin_of_text|>", "<|eot_id|>", "", "<|eot_id|>", True),
    "llama3.2": ("<|begin_of_text|>", "<|eot_id|>", "", "<|eot_id|>", True),
    "gemma2": ("<bos>", "<eos>", "", "<end_of_turn>", True),
    "gemma3": ("<bos>", "<eos>", "", "<end_of_turn>", True),
    "mistral-v0.1": ("<s>", "</s>", " ", "</s>", False),
    "mistral-v0.3": ("<s>", "</s>", " ", "</s>", True),
    "mistral-nemo": ("<s>", "</s>", "", "</s>", False),
    "phi3": ("<s>", "<|endoftext|>", "", "<|end|>", False),
    "phi3.5": ("<s>", "<|endoftext|>", "", "<|end|>", False),
    "phi4": ("<|endoftext|>", "<|im_end|>", "", "<|im_end|>", False),
    "qwen2": ("<|endoftext|>", "<|im_end|>", "", "<|im_end|>", False),
    "qwen3.5": ("<|endoftext|>", "<|im_end|>", "", "<|im_end|>", None),
    "gemma4": ("<bos>", "<eos>", "", "<turn|>", True),
    "phi3-bos": ("<s>", "<|endoftext|>", "", "<|end|>", False),
    "zephyr": ("<s>", "</s>", "", "</s>", False),
}

# ---- conversations ----

SPACES = "\t\u00a0\u2003\u3000\x1c\x85 \r\n"
KEPT = "\u200b\ufeff"  # no white space


def conversations():
    s, u, a = [lambda text, role=role: {"role": role, "content": text} for role in ("system", "user", "assistant")]
    return [
        [u("Hi"), a("Hello!")],
        [s("Be brief."), u("Hi"), a("Hello!")],
        [u("Hi")],
        [s("Be brief."), u("Hi")],
        [u("One?"), a("1"), u("Two?"), a("2"), u("Three?"), a("3")],
        [s("You count."), u("One?"), a("1"), u("Two?"), a("2")],
        [s("You count."), u("One?"), a("1"), u("Two?")],
        [u("One?"), a("1"), u("Two?")],
        [u("  blanks "), a("  around\n"), u("\n\nlines\n"), a("\n")],
        [s("  blanks \n"), u(" \t"), a(" x ")],
        [s(SPACES + "all kinds" + SPACES), u(SPACES + "u" + SPACES), a(SPACES + "a" + SPACES)],
        [u(KEPT + "no blank" + KEPT), a(" " + KEPT + "kept" + KEPT + " ")],
        [u(SPACES), a(SPACES), u("?")],
        [s(""), u("Hi"), a("Hello!")],
        [s(" "), u("Hi"), a("Hello!")],
        [u(""), a("")],
        [s(""), u(""), a(""), u("")],
        [u("Grüße, 世界 🌍"), a("مرحبا \u0301\U0001f468\u200d\U0001f469\u200d\U0001f467")],
        [s("日本語で。"), u("元気？　"), a("　はい")],
        [u("a\r\nb"), a("c\r\n")],
        [u("def f(x):\n    return x\n"), a("```python\nf(1)\n```\n"), u("{{ x }} {% y %} {# z #}"), a("\\n \"'\\")],
        [u("<|im_end|></s><end_of_turn>[/INST]<|eot_id|><|end|>"), a("<|im_start|>user\n[INST] <|user|>")],
        [u("x\x01y"), a("\x7f\x0b\x0c")],
        [a("First.")],
        [s("Be brief."), a("First."), u("And?"), a("Second.")],
        [u("One"), u("Two"), a("3")],
        [u("One"), a("2"), a("3")],
        [s("A"), s("B"), u("Hi"), a("Hello!")],
        [u("Hi"), s("late"), u("there"), a("Hello!")],
        [u("Hi"), a("Hello!"), s("late")],
        [s("Only this.")],
        [u("Hi"), a("<think>\nwhy\n</think>\n\nHello!"), u("And?"), a("Bye")],
    ]


# ---- renderings ----

def render(name, text, messages, prompt):
    bos, eos, *_ = TEMPLATES[name]
    got, _ = chat_template_utils.render_jinja_template([messages], chat_template=text, add_generation_prompt=prompt,
                                                       bos_token=bos, eos_token=eos)
    return got[0]


def expect(name, text, messages, prompt):
    """The rendering and the ranges of bytes that the assistant writes; or the template's reason to refuse."""
    _, _, lead, end, strips = TEMPLATES[name]
    try:
        whole = render(name, text, messages, prompt)
    except jinja2.exceptions.TemplateError as e:
        return str(e), None
    if strips is None:  # it rewrites answers: all that follows their header
        answers = re.finditer(rf"(?<=<\|im_start\|>assistant\n).*?{re.escape(end)}", whole, re.S)
        return whole, [tuple(len(whole[:at].encode()) for at in m.span()) for m in answers]
    marks = [f"\ue000{i}\ue001" for i in range(len(messages))]
    marked = render(name, text, [m | {"content": marks[i]} if m["role"] == "assistant" else m
                                 for i, m in enumerate(messages)], prompt)
    got, ranges = "", []
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        before, marked = marked.split(marks[i])
        assert before.endswith(lead) and marked.startswith(end), (name, messages)
        got += before
        begin = len(got.encode()) - len(lead)
        got += m["content"].strip() if strips else m["content"]
        ranges.append((begin, len((got + end).encode())))
    assert got + marked == whole, (name, messages)
    return whole, ranges


def entry(name, text, messages, prompt):
    whole, ranges = expect(name, text, messages, prompt)
    if ranges is None:
        return "refused: " + whole
    return hash64((whole + "".join(f" {b}-{e}" for b, e in ranges)).encode())


def bracketed(name, text, messages):
    whole, ranges = expect(name, text, messages, False)
    if ranges is None:
        return "refused: " + whole
    data = whole.encode()
    for begin, end in reversed(ranges):
        data = data[:begin] + b"[" + data[begin:end] + b"]" + data[end:]
    return data.decode()


def line_of(name, variants):
    cases = conversations()
    lines = [{"template": name, "bos": TEMPLATES[name][0], "eos": TEMPLATES[name][1], "date": Clock.now().date().isoformat(),
              "text_hashes": list(dict.fromkeys(hash64(t.rstrip(" \n\r\t").encode()) for t in variants)),
              "texts": [entry(name, text, c, False) for c in cases],
              "prompts": [entry(name, text, c, True) for c in cases],
              "whole": [bracketed(name, text, cases[i]) for i in (1, 5, 9)]} for text in variants]
    assert all(line == lines[0] for line in lines), name
    return json.dumps(lines[0], ensure_ascii=False)


def main():
    HERE.mkdir(exist_ok=True)
    with open(HERE / "conversations.jsonl", "w") as f:
        f.writelines(json.dumps(c, ensure_ascii=True) + "\n" for c in conversations())
    with open(HERE / "expected.jsonl", "w") as f:
        f.writelines(line_of(n, v) + "\n" for n, v in texts_of(pathlib.Path(sys.argv[1])).items())


if __name__ == "__main__":
    main()
