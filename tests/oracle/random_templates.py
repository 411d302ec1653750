"""Makes random templates: expressions, filters, tests, methods and statements of jinja2, combined at random from
`seed`.

Most of them can be rendered; many fail, and then both interpreters must fail.
"""

import random

CONTEXT = {
    "messages": [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": " 1 < 2\n\nb\u00e9\u4e2d "}, {"role": "user", "content": "x"}],
    "tools": None, "add_generation_prompt": True, "bos_token": "<s>",
}
ATOMS = [
    "messages", "messages[0]", "messages[1].content", "messages[-1]['role']", "tools", "bos_token", "absent", "none", "true", "false",
    "0", "1", "2", "3", "-1", "7", "10", "255", "2.5", "0.1", "-3.7", "1e3", "1.0", "100000", "0x1F", "1_000", "''", "'a'", "'Ab c'", "'x-y z'", "'12'", "' 3.50 '",
    "'a,b,,c'", "'\u00df\u01c6 \u00c9'", "'%s|%5d'", "'{}-{:>4}'", "'a\\nb\\n\\nc'", "\"it's\"", "'q\"q'", "[]", "[1, 2, 3]", "[3, 1, 2]", "['b', 'A', 'a', 'B']", "(1, 2)", "('a',)", "()",
    "[[1, 2], [3]]", "{}", "{'a': 1, 'b': [2, 3]}", "{'B': 2, 'a': 1}", "{1: 'x', true: 'y', none: 'z'}", "[{'k': 'b', 'n': 2}, {'k': 'a', 'n': 1}, {'k': 'B', 'n': 3}]", "range(4)",
    "range(5, 0, -2)", "{'a': 1}.items()", "{'a': 1, 'b': 2}.keys()", "{'a': 1}.values()", "[1, 'a', none, 2.0]", "[true, false]", "dict(a=1, b='x')", "'abcabc'",
]
WORDS = ["'a'", "'b'", "' '", "','", "'k'", "'n'", "'role'", "'content'", "'x'", "'upper'", "'length'", "'string'", "'defined'", "'equalto'"]
NUMBERS = ["0", "1", "2", "3", "-1", "5", "10"]
FILTERS = {
    "abs": "", "batch": "n|n,w", "capitalize": "", "center": "|n", "count": "", "d": "|w|w,b", "default": "w|w,b|e", "dictsort": "|b|b,'value'|reverse=b", "e": "", "escape": "", "first": "", "float": "|n", "format": "e|e,e",
    "groupby": "'k'|'n'|'role'|'k',default='z'", "indent": "|n|n,b|n,b,b|'> '", "int": "|n|n,16", "items": "", "join": "|w|w,'k'|attribute='n'", "last": "", "length": "", "list": "", "lower": "",
    "map": "'upper'|'length'|attribute='k'|attribute='role'|attribute='z',default='D'|'int'|'default','w'|'string'|'trim'|'list'", "max": "|b|attribute='n'", "min": "|b|attribute='k'", "reject": "|'odd'|'equalto',1|'none'",
    "rejectattr": "'k'|'role','equalto','user'", "replace": "w,w|w,w,n|'',w", "reverse": "", "round": "|n|n,'ceil'|n,'floor'|n,'common'", "safe": "", "select": "|'string'|'gt',1|'in',e", "selectattr": "'k'|'n','gt',1|'role','==','user'",
    "slice": "n|n,w", "sort": "|b|b,b|attribute='k'|attribute='n,k'|reverse=true", "string": "", "sum": "|'n'|start=n", "title": "", "tojson": "|indent=n|ensure_ascii=b|sort_keys=true|separators=(',',':')|b,n", "trim": "|w", "truncate": "n|n,b|n,b,'..'|n,b,'.',0",
    "unique": "|b|attribute='k'", "upper": "", "urlencode": "", "wordcount": "", "attr": "w", "filesizeformat": "|b",
}
TESTS = {
    "boolean": "", "callable": "", "defined": "", "divisibleby": "n", "eq": "e", "escaped": "", "even": "", "false": "", "filter": "", "float": "", "ge": "e", "gt": "e", "greaterthan": "n", "in": "e", "integer": "", "iterable": "", "le": "e",
    "lower": "", "lt": "n", "lessthan": "n", "mapping": "", "ne": "e", "none": "", "number": "", "odd": "", "sameas": "none|true|false", "sequence": "", "string": "", "test": "", "true": "", "undefined": "", "upper": "", "equalto": "e", "==": None, "!=": None,
}
METHODS = {
    "capitalize": "", "casefold": "", "center": "n|n,'*'", "count": "w|w,n", "endswith": "w|('a','b')|w,n", "expandtabs": "|n", "find": "w|w,n|w,n,n", "format": "e|e,e", "index": "w|n", "isalnum": "", "isalpha": "", "isascii": "", "isdecimal": "",
    "isdigit": "", "islower": "", "isnumeric": "", "isspace": "", "istitle": "", "isupper": "", "join": "e", "ljust": "n|n,'.'", "lower": "", "lstrip": "|w", "partition": "w", "removeprefix": "w", "removesuffix": "w", "replace": "w,w|w,w,n|'',w",
    "rfind": "w|w,n", "rindex": "w", "rjust": "n", "rpartition": "w", "rsplit": "|w|w,n|none,n|maxsplit=n", "rstrip": "|w", "split": "|w|w,n|none,n|sep=w", "splitlines": "|b", "startswith": "w|w,n", "strip": "|w", "swapcase": "", "title": "",
    "upper": "", "zfill": "n", "get": "w|w,e", "items": "", "keys": "", "values": "", "copy": "", "append": "e", "update": "e", "bit_length": "", "is_integer": "",
}
ATTRIBUTES = ["a", "b", "k", "role", "content", "items", "0", "1", "absent", "real", "imag", "upper", "__class__", "grouper", "list"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def arguments(self, kinds, depth):
        if kinds == "":
            return "()" if self.rng.random() < 0.3 else ""
        parts = []
        for kind in self.rng.choice(self.split(kinds)):
            name, _, value = kind.rpartition("=") if kind.endswith(("=n", "=b", "=w")) else ("", "", kind)
            made = {"n": NUMBERS, "w": WORDS, "b": ["true", "false"]}.get(value)
            text = self.rng.choice(made) if made else self.expression(depth - 1) if value == "e" else value
            parts.append(f"{name}={text}" if name else text)
        return f"({', '.join(parts)})"

    @staticmethod
    def split(kinds):
        """Splits lists of arguments at "|"; a comma within brackets does not separate."""
        lists = []
        for one in kinds.split("|"):
            parts, depth = [""], 0
            for c in one:
                depth += (c in "([") - (c in ")]")
                if c == "," and depth == 0 and parts[-1] != "'" and not parts[-1].startswith("separators"):
                    parts.append("")
                else:
                    parts[-1] += c
            lists.append([part for part in parts if part])
        return lists

    def expression(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.12:
            return rng.choice(ATOMS)
        kind = rng.random()
        inner = self.expression(depth - 1)
        if kind < 0.42:
            name = rng.choice(list(FILTERS))
            return f"{inner} | {name}{self.arguments(FILTERS[name], depth)}" if rng.random() < 0.7 else f"({inner}) | {name}{self.arguments(FILTERS[name], depth)} | list"
        if kind < 0.54:
            name = rng.choice([name for name in TESTS if TESTS[name] is not None])
            arguments = self.arguments(TESTS[name], depth)
            return f"({inner}) is {rng.choice(['', 'not '])}{name}{arguments}"
        if kind < 0.72:
            name = rng.choice(list(METHODS))
            return f"({inner}).{name}" + (self.arguments(METHODS[name], depth) or "()")
        if kind < 0.78:
            return f"({inner}).{rng.choice(ATTRIBUTES)}" if rng.random() < 0.5 else f"({inner})[{rng.choice(NUMBERS + WORDS)}]"
        if kind < 0.83:
            bounds = [rng.choice(["", *NUMBERS]) for _ in range(rng.randint(2, 3))]
            return f"({inner})[{':'.join(bounds)}]"
        if kind < 0.95:
            return f"({inner}) {rng.choice(OPERATORS)} ({self.expression(depth - 1)})"
        if kind < 0.97:
            return f"({inner} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
        return f"{rng.choice(['not ', '-'])}({inner})"

    def statement(self, depth):
        """Returns a statement that prints something."""
        rng = self.rng
        e = self.expression
        body = self.statement(depth - 1) if depth > 0 else "{{ " + rng.choice(["x", "y", "loop.index", "a", e(1)]) + " }}"
        return rng.choice([
            lambda: f"{{{{ {e(2)} }}}}",
            lambda: f"{{% set x = {e(1)} %}}{body}",
            lambda: f"{{% set x, y = {rng.choice(ATOMS)}, {rng.choice(ATOMS)} %}}{body}{{{{ x }}}}",
            lambda: f"{{% set (x, (y, a)) = (1, (2, {rng.choice(ATOMS)})) %}}{body}",
            lambda: f"{{% for x in {e(1)} %}}{body}{{{{ loop.index0 ~ loop.last ~ loop.cycle('o', 'e') ~ loop.changed(x) }}}}{{% else %}}none{{% endfor %}}",
            lambda: f"{{% for x, y in {rng.choice(['messages[0].items()', '[(1, 2), [3, 4]]', 'messages[0] | items', '{1: 2} | dictsort', '[ [1] ]'])} if x %}}{body}{{% endfor %}}",
            lambda: f"{{% for x in [[1, [2]], [3]] recursive %}}{{{{ loop(x) if x is iterable else x ~ loop.depth }}}},{{% endfor %}}",
            lambda: f"{{% if {e(1)} %}}{body}{{% elif {e(1)} %}}2{{% else %}}3{{% endif %}}",
            lambda: f"{{% with x = {e(1)}, y = x %}}{body}{{% endwith %}}{{{{ x }}}}",
            lambda: f"{{% set n = namespace(a={rng.choice(ATOMS)}) %}}{{% for x in [1, 2] %}}{{% set n.a = {e(1)} %}}{{% endfor %}}{{{{ n.a }}}}",
            lambda: f"{{% macro m(x, y={rng.choice(ATOMS)}) %}}{{{{ x }}}}{rng.choice(['{{ varargs }}{{ kwargs }}', '{{ caller is defined }}', ''])}{body}{{% endmacro %}}"
                    f"{{{{ m({rng.choice(ATOMS)}{rng.choice(['', ', 2', ', *[4, 5]', ', y=3', ', 2, 3, z=4', ', **{1: 2}'])}) }}}}",
            lambda: f"{{% filter {rng.choice(['upper', 'trim | title', 'indent(2)', 'replace(1, 2)'])} %}} {body} {{% endfilter %}}",
            lambda: f"{{% set x | {rng.choice(['upper', 'length', 'trim'])} %}} {body} {{% endset %}}{{{{ x }}}}",
            lambda: f"{{% raw {rng.choice(['', '-'])}%}}\n {{{{ x }}}} {{% if %}}\n {{%{rng.choice(['', '-', '+'])} endraw {rng.choice(['', '-', '+'])}%}}\n {body}",
            lambda: f"{{% block b{rng.randrange(10**9)} %}}{body}{{% endblock %}}",
            lambda: f"{{% set c = cycler('p', 'q') %}}{{% set j = joiner('|') %}}{{% for x in [1, 2, 3] %}}{{{{ j() }}}}{{{{ c.next() }}}}{body}{{% endfor %}}{{{{ c.current }}}}",
            lambda: f"{{% autoescape false %}}{body}{{% endautoescape %}}{{% print {rng.choice(ATOMS)}, 1 %}}",
            lambda: f"{{% if {rng.choice(['tools', 'true', 'false'])} %}}{{{{ 'a' | {rng.choice(['from_json', 'upper', 'nothing'])} }}}}{{% endif %}}",
        ])()


def templates(seed, count):
    maker = Maker(seed)
    return [maker.statement(maker.rng.choice([0, 0, 1])) for _ in range(count)]
