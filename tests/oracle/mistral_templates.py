"""Chat templates built like those of Mistral's models with byte-level tokenizers; the wording is ours."""

# Nemo, Ministral 8B: the system message goes into the last user message, with the tools in front of it.
NEMO = r"""{%- if messages[0]["role"] == "system" %}
    {%- set instructions = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set asked = turns | selectattr("role", "equalto", "user") | list %}

{#- Turns alternate, but for those that call tools. #}
{%- for turn in turns | rejectattr("role", "equalto", "tool") | rejectattr("role", "equalto", "tool_results") | selectattr("tool_calls", "undefined") %}
    {%- if (turn["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
{%- endfor %}
{%- set count = namespace() %}
{%- set count.turns = 0 %}

{{- bos_token }}
{%- for turn in turns %}
    {%- if not (turn.role == "tool" or (turn.tool_calls is defined and turn.tool_calls is not none)) %}
        {%- set count.turns = count.turns + 1 %}
    {%- endif %}
    {%- if turn["role"] == "user" %}
        {%- if tools is not none and (turn == asked[-1]) %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {%- for key, entry in tool.function.items() if key != "return" %}
                    {%- if entry is string %}
                        {{- '"' + key + '": "' + entry + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + entry|tojson }}
                    {%- endif %}
                {%- endfor %}
            {%- endfor %}
            {{- "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and instructions is defined %}
            {{- "[INST]" + instructions + "\n\n" + turn["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + turn["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for call in turn.tool_calls %}
            {%- set text = call.function|tojson %}
            {{- text[:-1] }}
            {%- if not call.id is defined or call.id|length != 9 %}
                {{- raise_exception("the id of a call has 9 letters") }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
        {%- endfor %}
    {%- elif turn["role"] == "assistant" %}
        {{- turn["content"] + eos_token}}
    {%- elif turn["role"] == "tool_results" or turn["role"] == "tool" %}
        {%- if turn.content is defined and turn.content.content is defined %}
            {%- set content = turn.content.content %}
        {%- else %}
            {%- set content = turn.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("no such role") }}
    {%- endif %}
{%- endfor %}
"""

# Small 3, Devstral: the template has its own system message, over several lines of source. `today` replaces the date
# that the originals take from the clock.
SMALL = r"""{%- set today = '2025-01-30' %}
{%- set usual = "You are a model, \"small\".\nToday is " + today + ".\n\nAsk back \
where it\'s unclear (e.g. \"What's near?\" => \"Where are you\u003f\").\t" %}

{{- bos_token }}

{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}
        {%- set instructions = messages[0]['content'] %}
    {%- else %}
        {%- set instructions = messages[0]['content'][0]['text'] %}
    {%- endif %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set instructions = usual %}
    {%- set turns = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- elif tools is not none %}
    {{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + instructions + '[/SYSTEM_PROMPT]' }}

{%- set asked = turns | selectattr("role", "equalto", "user") | list %}
{%- for turn in turns %}
    {%- if turn['role'] == 'user' %}
	    {%- if turn['content'] is string %}
            {{- '[INST]' + turn['content'] + '[/INST]' }}
	    {%- else %}
		    {{- '[INST]' }}
		    {%- for block in turn['content'] %}
			    {%- if block['type'] == 'text' %}
				    {{- block['text'] }}
			    {%- elif block['type'] in ['image', 'image_url'] %}
				    {{- '[IMG]' }}
				{%- else %}
				    {{- raise_exception('no such block') }}
				{%- endif %}
			{%- endfor %}
		    {{- '[/INST]' }}
		{%- endif %}
        {%- if turn == asked[-1] and not loop.last %}
            {{- '[LAST]' }}
        {%- endif %}
    {%- elif turn['role'] == 'system' %}
        {{- '[SYSTEM_PROMPT]' + turn['content'] + '[/SYSTEM_PROMPT]' }}
    {%- elif turn['role'] == 'assistant' %}
        {%- if turn.tool_calls is defined and turn.tool_calls is not none and turn.tool_calls|length > 0 %}
            {{- raise_exception('no calls') }}
        {%- endif %}
        {{- turn['content'] + eos_token }}
    {%- else %}
        {{- raise_exception('no such role') }}
    {%- endif %}
{%- endfor %}"""
