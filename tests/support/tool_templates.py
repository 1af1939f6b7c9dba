"""Small tokenizers with chat templates that write tools in the text formats of families of models, in words of their own."""

from typing import Any

from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer

SCHEMAS = "{%- for tool in tools -%}{{ '\\n' + (tool | tojson) }}{%- endfor -%}"
# As Qwen 2.5 and 3, and Hermes: schemas in the system message, results in messages of the user.
HERMES = (
    "{%- set own = messages[0].content if messages[0].role == 'system' else 'You help.' -%}"
    "{{- '<|im_start|>system\\n' + own -}}"
    "{%- if tools -%}{{- '\\n\\n# Tools\\n\\nCall these functions where they help:\\n<tools>' -}}"
    + SCHEMAS
    + '{{- \'\\n</tools>\\nWrite <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call> for each.\' -}}{%- endif -%}'
    "{{- '<|im_end|>\\n' -}}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'tool' -%}"
    "{%- if messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}"
    "{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- elif m.tool_calls -%}{{- '<|im_start|>assistant' + ('\\n' + m.content if m.content else '') -}}"
    "{%- for call in m.tool_calls -%}"
    '{{- \'\\n<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    "{{- (call.function.arguments | tojson) + '}\\n</tool_call>' -}}"
    "{%- endfor -%}{{- '<|im_end|>\\n' -}}"
    "{%- elif m.role != 'system' -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
# As Llama 3.1 and 3.2: one call in a message, results as JSON.
LLAMA = (
    "{%- macro head(role) -%}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' -}}{%- endmacro -%}"
    "{{- '<|begin_of_text|>' + head('system') -}}"
    "{%- if tools -%}{{- 'Environment: ipython\\n' -}}{%- endif -%}"
    '{%- if tools -%}{{- \'Answer with JSON, {"name": ..., "parameters": ...}, to call one of:\\n\' -}}'
    "{%- for tool in tools -%}{{- (tool | tojson(indent=4)) + '\\n\\n' -}}{%- endfor -%}{%- endif -%}"
    "{{- (messages[0].content | trim if messages[0].role == 'system' else '') + '<|eot_id|>' -}}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'tool' -%}{{- head('ipython') + ({'output': m.content} | tojson) + '<|eot_id|>' -}}"
    "{%- elif m.tool_calls -%}"
    "{%- if m.tool_calls | length != 1 -%}{{- raise_exception('one call at a time') -}}{%- endif -%}"
    "{%- set call = m.tool_calls[0].function -%}"
    "{{- head('assistant') + '{\"name\": \"' + call.name + '\", \"parameters\": ' -}}"
    "{{- (call.arguments | tojson) + '}<|eot_id|>' -}}"
    "{%- elif m.role != 'system' -%}{{- head(m.role) + (m.content | trim) + '<|eot_id|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- head('assistant') -}}{%- endif -%}"
)
ALTERNATE = (
    "{%- for m in messages | rejectattr('role', 'equalto', 'tool') | rejectattr('role', 'equalto', 'system')"
    " | selectattr('tool_calls', 'undefined') -%}"
    "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('roles must alternate') -}}{%- endif -%}"
    "{%- endfor -%}"
)
# As Mistral's third tokenizer: tools before the last question, calls with ids that results repeat.
MISTRAL = (
    ALTERNATE + "{%- set questions = messages | selectattr('role', 'equalto', 'user') | list -%}"
    "{%- macro id(text) -%}{%- if text is not defined or text | length != 9 -%}"
    "{{- raise_exception('ids have nine letters') -}}{%- endif -%}{{- text -}}{%- endmacro -%}"
    "{{- '<s>' -}}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}"
    "{%- if tools and m == questions[-1] -%}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}{%- endif -%}"
    "{{- '[INST] ' + (messages[0].content + '\\n\\n' if loop.last and messages[0].role == 'system' else '') -}}"
    "{{- m.content + '[/INST]' -}}"
    "{%- elif m.tool_calls is defined -%}{{- '[TOOL_CALLS] [' -}}"
    "{%- for call in m.tool_calls -%}"
    "{{- (call.function | tojson)[:-1] + ', \"id\": \"' + id(call.id) + '\"}' + ('' if loop.last else ', ') -}}"
    "{%- endfor -%}{{- ']</s>' -}}"
    "{%- elif m.role == 'assistant' -%}{{- ' ' + m.content + '</s>' -}}"
    "{%- elif m.role == 'tool' -%}"
    "{{- '[TOOL_RESULTS] {\"content\": ' + m.content + ', \"call_id\": \"' + id(m.tool_call_id) + '\"}[/TOOL_RESULTS]' -}}"
    "{%- endif -%}{%- endfor -%}"
)
# As Mistral's tokenizers since the eleventh: names and arguments behind tokens of their own.
MISTRAL_ARGS = (
    ALTERNATE + "{{- '<s>' -}}"
    "{%- if messages[0].role == 'system' -%}{{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' -}}{%- endif -%}"
    "{%- if tools -%}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}{%- endif -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}{{- '[INST]' + m.content + '[/INST]' -}}"
    "{%- elif m.role == 'assistant' -%}{{- m.content -}}"
    "{%- for call in m.tool_calls -%}"
    "{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) -}}"
    "{%- endfor -%}{{- '</s>' -}}"
    "{%- elif m.role == 'tool' -%}{{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' -}}"
    "{%- endif -%}{%- endfor -%}"
)
INSTRUCT = ("<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]")
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "hermes": (HERMES, "<|im_end|>", ("<|im_start|>",)),
    "hermes_special": (HERMES, "<|im_end|>", ("<|im_start|>", "<tool_call>", "</tool_call>")),
    "llama": (LLAMA, "<|eot_id|>", ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>")),
    "mistral": (MISTRAL, "</s>", (*INSTRUCT, "[/TOOL_RESULTS]")),
    "mistral_args": (
        MISTRAL_ARGS,
        "</s>",
        (*INSTRUCT, "[/TOOL_RESULTS]", "[ARGS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    ),
}
SPOKEN = ('{"name": "add", "arguments": {"a": 2, "b": 3}}', 'It is."}\n', '"""}}\n\n# Tools\n', '."}', ".\n\n", "]}]")


def tool_tokenizer(kind: str) -> Any:
    """Return a tokenizer with the template and special tokens of a kind; texts like those around contents are its tokens."""
    template, eos, special = KINDS[kind]
    tokenizer = train_tokenizer([text * 8 for text in SPOKEN], vocabulary=400)
    tokenizer.add_special_tokens({"eos_token": eos, "extra_special_tokens": list(special)})
    tokenizer.chat_template = template
    return tokenizer
