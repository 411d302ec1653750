"""Chat templates built from macros like those of gpt-oss, Qwen3 Coder and similar models; the wording is ours."""

# A template's code for tools is not run without tools, so the templates contain the tools.
SCHEMA = r"""{%- set tools = [
    {'name': 'find', 'description': 'Finds\na thing.', 'parameters': {'type': 'object', 'required': ['what'], 'properties': {
        'what': {'type': 'string', 'description': 'what', 'default': 'x'},
        'kinds': {'type': 'array', 'items': {'type': 'string', 'enum': ['b', 'A']}, 'nullable': true},
        'where': {'type': 'object', 'properties': {'Row': {'type': 'integer'}, 'col': {'type': ['number', 'null']}}}}}},
    {'name': 'stop', 'description': 'Ends it.'}] %}
"""

# This template has types by a macro that calls itself, a date of its own, and channels.
HARMONY = SCHEMA + r"""
{%- macro type_of(spec, required, depth=0) -%}
    {%- if spec.type == "array" -%}
        {{- type_of(spec['items'], required, depth + 1) + "[]" }}
        {%- if spec.nullable %}{{ " | null" }}{% endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.enum is defined and spec.enum -%}
        {{- '"' + spec.enum | sort | join('" | "') + '"' }}
    {%- elif spec.type == "object" -%}
        {{- "{\n" }}
        {%- for name, part in spec.properties | dictsort %}
            {{- name -}}
            {%- if name not in (required or []) %}{{ "?" }}{% endif -%}
            {{- ": " }}{{ type_of(part, part.required or [], depth=depth + 1) }}
            {%- if not loop.last %}{{ ", " }}{% endif -%}
        {%- endfor %}
        {{- "}" ~ depth }}
    {%- else -%}
        {{- {'integer': 'number'}.get(spec.type, spec.type | default("any", true)) }}
    {%- endif -%}
{%- endmacro -%}

{%- macro describe(name, tools) -%}
    {{- "## " + name.title() + "\n" }}
    {%- for tool in tools %}
        {%- for line in tool.description.split('\n') %}
            {{- "// " + line | capitalize + "\n" }}
        {%- endfor %}
        {{- "type " + tool.name + " = (" }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "_: " + type_of(tool.parameters, tool.parameters.required) }}
        {%- endif %}
        {{- ") => any;\n" }}
    {%- endfor %}
{%- endmacro -%}

{%- macro system() -%}
    {%- if model_identity is not defined %}
        {%- set model_identity = "You are a model." %}
    {%- endif %}
    {{- model_identity + "\nCurrent date: 2025-01-30\n\nReasoning: " + (reasoning_effort or "medium") + "\n" }}
    {{- describe("tools", tools) }}
{%- endmacro -%}

{{- "<|start|>system<|message|>" }}{{ system() }}{{ "<|end|>" }}
{%- if messages[0].role in ["developer", "system"] %}
    {%- set instructions = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set instructions = "" %}
    {%- set turns = messages %}
{%- endif %}
{%- if instructions %}{{ "<|start|>developer<|message|>" + instructions + "<|end|>" }}{% endif %}
{%- set last = namespace(name=none) %}
{%- for turn in turns -%}
    {%- if turn.role == 'assistant' -%}
        {%- if "<|channel|>" in turn.content %}{{ raise_exception("a channel in the content") }}{% endif %}
        {%- if loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + turn.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + turn.content + "<|end|>" }}
        {%- endif %}
    {%- elif turn.role == 'user' -%}
        {{- "<|start|>user<|message|>" + turn.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|start|>assistant" }}{% endif -%}
"""

# This template has a macro with a caller, bodies that are set and filtered, code that no branch without tools reaches,
# and a reasoning that is cut out.
BODIES = SCHEMA + r"""
{%- macro rest(dict, known) %}
    {%- for key in dict if key not in known %}
        {{- '\n<' ~ key ~ '>' ~ (dict[key] | string if dict[key] is not mapping else dict[key] | tojson) ~ '</' ~ key ~ '>' }}
    {%- endfor %}
{%- endmacro %}
{%- macro turn(role, mark='|') %}
{{ '<' ~ mark ~ role | capitalize ~ mark ~ '>' }}
{{ caller(role) }}
{%- endmacro %}
{%- macro strip_thinking(text) -%}
    {%- set ns = namespace(out='') -%}
    {%- for part in text.split('</think>') -%}
        {%- set ns.out = ns.out + part.split('<think>')[0] -%}
    {%- endfor -%}
    {{- ns.out | trim -}}
{%- endmacro -%}
{%- set names = tools | map(attribute='name') | list %}
{%- set preface -%}
    Tools: {{ names | map('upper') | join(', ') }}
    {%- for tool in tools %}{{ rest(tool, ['name', 'parameters']) }}{% endfor %}
{% endset %}
{%- filter trim %}

  {{ preface | title }}
{% endfilter %}
{%- set state = {'head': true} %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- set _ = state.update({'head': false}) %}
        {{- message.tool_calls[0].0 | tojson | safe }}
    {%- endif %}
    {%- set thinking = enable_thinking is not defined or enable_thinking %}
    {%- call(who) turn(message.role, mark='|' if thinking else '-') %}
        {%- generation %}{{ strip_thinking(message.content) if who == 'assistant' else message.content }}{% endgeneration %}
        {{- loop.index ~ state.head }}
    {%- endcall %}
{%- endfor %}
{%- if add_generation_prompt %}{% call(who) turn('assistant') %}{{ who }}{% endcall %}{% endif %}
"""
