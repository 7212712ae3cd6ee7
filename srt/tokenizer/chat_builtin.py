"""Chat templates of our own, by name, for models whose files bring none.

Owns the template texts. Each renders `bos_token` first; it is "" for a model that wants none.
System messages come first; `gemma`, which has no system turn, puts them before the first user's
words.
"""

from __future__ import annotations

CHATML = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' }}
{{- message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

GEMMA = """\
{%- macro turn(speaker, text) %}
{{- '<start_of_turn>' ~ speaker ~ '\\n' ~ text | trim ~ '<end_of_turn>\\n' }}
{%- endmacro %}
{{- bos_token }}
{%- set lead = namespace(text='', spoken=false) %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- if lead.spoken %}
{{- raise_exception('a system message must come before the first turn') }}
{%- endif %}
{%- set lead.text = lead.text ~ message.content | trim ~ '\\n\\n' %}
{%- elif message.role == 'assistant' %}
{{- turn('model', message.content) }}
{%- set lead.spoken = true %}
{%- elif message.role == 'user' %}
{{- turn('user', lead.text ~ message.content | trim) }}
{%- set lead.text = '' %}
{%- set lead.spoken = true %}
{%- else %}
{{- raise_exception('role ' ~ message.role ~ ' is not known to this chat template') }}
{%- endif %}
{%- endfor %}
{%- if not lead.spoken %}
{{- turn('user', lead.text) }}
{%- endif %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

BUILT_IN = {"chatml": CHATML, "gemma": GEMMA, "llama3": LLAMA3}

# For model files without a template, by architecture (GGUF) or model_type (config.json).
BY_ARCHITECTURE = {"gemma3": "gemma", "gemma3_text": "gemma"}
