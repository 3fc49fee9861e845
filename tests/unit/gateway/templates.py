"""Chat templates with tools, in the forms that models of two families have; small, and written for these tests."""

from __future__ import annotations

HERMES_TEMPLATE = r"""{%- if tools %}
{{- '<|im_start|>system\n# Tools\n\n<tools>' }}
{%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}
{{- '\n</tools>\n\nTo call:\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content }}
{%- for call in message.tool_calls %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

LLAMA_TEMPLATE = r"""{%- if tools is not none %}
{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
{%- if 'tool_calls' in message %}
{{- '{"name": "' + message.tool_calls[0].function.name + '", ' }}
{{- '"parameters": ' }}{{- message.tool_calls[0].function.arguments | tojson }}{{- '}' }}
{%- else %}{{- message.role + ': ' + message.content }}{%- endif %}
{{- '<|im_end|>' }}
{%- endfor %}"""
