"""Makes chat/jinja.jsonl: what transformers renders with templates of our own that use what templates use. With the packages
of make_chat.py (trl and llama-cpp-python), instead a file of the same form for published templates, which is not kept here:

    python make_jinja.py                               chat/jinja.jsonl
    python make_jinja.py FOLDER_OF_PACKAGES OUT.jsonl  20 and more published templates, 50 conversations each
    NDP_JINJA_CASES=OUT.jsonl build/test_jinja         also compares that file
"""

import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

import make_chat

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather \u2014 now & here.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Où? <b>"},
                                         "days": {"type": "integer", "enum": [1, 2, 3]}}, "required": ["city"]}}}

OWN = {
    "marked": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}\n<a>\n    {% generation %}{{ m['content'] | trim }}"
              "{{ eos_token }}{% endgeneration %}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
              "{% if add_generation_prompt %}<a>\n{% endif %}",
    "tools": "{%- if tools %}{{- 'tools ' + tools | tojson + '\\n' }}{{ tools[0] | tojson(indent=2) }}{%- endif %}\n"
             "{%- for m in messages %}\n    {%- set calls = m.tool_calls | default([]) %}\n"
             "    {{- '[' ~ m.role ~ ']' ~ (m.content if m.content is string else '') }}\n"
             "    {%- for c in calls %}{{ '<call>' ~ c.function.arguments | tojson ~ '</call>' }}{% endfor %}"
             "{{- '[end]\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '[assistant]' }}{%- endif %}",
    "macros": "{%- macro line(m) -%}{{ m['role'].upper() }}: {{ m['content'].split('</think>')[-1].lstrip('\\n') }}{%- endmacro -%}"
              "{%- set ns = namespace(n=0, last=messages|length - 1) -%}{%- for m in messages -%}"
              "{%- if m['role'] == 'system' and not loop.first -%}{{ raise_exception('A late system prompt in ' ~ loop.index) }}{%- endif -%}"
              "{%- if m['content'] == '' -%}{%- continue -%}{%- endif -%}{%- set ns.n = ns.n + 1 -%}"
              "{{ ns.n }} {{ line(m) }}\n{% endfor -%}{%- if add_generation_prompt -%}ASSISTANT: {% endif %}",
    "dated": "{{ strftime_now('%d %b %Y') }}\n{% for m in messages[::-1] %}{% if loop.index > 3 %}{% break %}{% endif %}"
             "{{ m.role }} {{ m.content|length }} {{ m.content.encode is defined }}|{% endfor %}\n",
    "pieces": "{% for m in messages %}{% filter trim %}  {{ m.content.replace('\\n', ' ') }}  {% endfilter %}"
              "{{ eos_token if m.role == 'assistant' else '' }}{{ pad_token }}{{ missing }}\n{% endfor %}",
}

PUBLISHED_TRL = """cohere cohere2 deepseek_r1_distill deepseekv3 gemma gemma3 glm4moe gptoss lfm2 llama3 llama3_1 llama3_2 phi3
phi3_5 qwen2_5 qwen3 qwen3_instruct_2507 qwen3_5_think smolvlm nemotron_3_nano cohere_training gemma_training glm4moe_training
llama3_training qwen2_5_training qwen3_training deepseekv3_training phi3_training""".split()
PUBLISHED_LLAMA = """CohereForAI-c4ai-command-r7b-12-2024-tool_use Mistral-Small-3.2-24B-Instruct-2506 Qwen-QwQ-32B
NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use ibm-granite-granite-3.3-2B-Instruct meetkai-functionary-medium-v3.2
meta-llama-Llama-3.3-70B-Instruct mistralai-Mistral-Nemo-Instruct-2407 moonshotai-Kimi-K2 fireworks-ai-llama-3-firefunction-v2
unsloth-mistral-Devstral-Small-2507""".split()


def conversations():
    """50: those of make_chat.py, and some with tools."""
    plain = [{"messages": c, "tools": None} for c in make_chat.conversations()]
    user = {"role": "user", "content": "Weather in Paris?"}
    tools = []
    for i in range(50 - len(plain)):
        arguments = {"city": ["Paris", "Zürich", "東京"][i % 3], "days": i % 4, "exact": i % 2 == 0, "note": None}
        call = {"type": "function", "id": f"call{i:05d}", "function": {
            "name": "get_weather", "arguments": arguments if i % 3 else json.dumps(arguments)}}
        answer = {"role": "tool", "content": '{"t": %d, "sky": "grüß <gott>"}' % i, "tool_call_id": call["id"], "name": "get_weather"}
        called = {"role": "assistant", "content": ["", None, "Let me see."][i % 3], "tool_calls": [call, call][:1 + i % 2]}
        messages = [user, called, answer, {"role": "assistant", "content": f"{i} degrees."}]
        if i % 4 == 1:
            messages.insert(0, {"role": "system", "content": "You know the weather."})
        if i % 4 == 2:
            messages += [{"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "\n\nWelcome "}]
        if i % 5 == 4:
            messages = messages[:1]
        tools.append({"messages": messages, "tools": [TOOL] * (i % 3)})
    return plain + tools


def case(template, conversation, prompt):
    messages, tools = conversation["messages"], conversation["tools"] or None
    marked = "generation %}" in template or "generation -%}" in template
    out = {"messages": messages, "tools": tools, "prompt": prompt}
    try:
        texts, places = chat_template_utils.render_jinja_template(
            [messages], tools=tools, chat_template=template, add_generation_prompt=prompt,
            return_assistant_tokens_mask=marked and not prompt, **VARIABLES)
    except (jinja2.exceptions.TemplateError, TypeError, AttributeError, KeyError, ValueError, IndexError) as error:
        return out | {"refused": str(error).split("\n")[0][:100].strip()}
    out["text"] = texts[0]
    if marked and not prompt:
        out["spans"] = [[len(texts[0][:at].encode()) for at in place] for place in places[0]]
    return out


def line_of(name, template, all_of):
    cases = [case(template, c, prompt) for c in all_of for prompt in (False, True)]
    return json.dumps({"name": name, "template": template, "variables": VARIABLES, "date": make_chat.Clock.now().date().isoformat(),
                       "cases": cases}, ensure_ascii=False)


def main():
    if len(sys.argv) == 1:
        all_of = conversations()
        some = [all_of[i] for i in (0, 4, 8, 11, 17, 24, 29, 31, 33, 37, 40)]
        lines = [line_of(name, text, some) for name, text in OWN.items()]
        out = make_chat.HERE / "jinja.jsonl"
    else:
        folder = pathlib.Path(sys.argv[1])
        texts = {n: make_chat.wheel(folder, "trl", f"trl/chat_templates/{n}.jinja") for n in PUBLISHED_TRL}
        texts |= {n: make_chat.llama_cpp(folder, f"models/templates/{n}.jinja") for n in PUBLISHED_LLAMA}
        lines = [line_of(name, text, conversations()) for name, text in texts.items()]
        out = pathlib.Path(sys.argv[2])
    out.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
