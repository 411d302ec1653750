"""Makes pairs of an answer and the expected answer as models and benchmarks write them: right in other words, or
slightly wrong.

`pairs(seed, count)` yields (kind, given, expected), each kind of KINDS about equally often.

It leaves out what math-verify 0.9.0 judges by accident, since agreement with that proves nothing; SLIPS in
test_grading.py has such pairs with the right judgement.
"""

import random

UNITS = ["km", "cm", "m", "kg", "apples", "minutes", "dollars", "feet", "square units", "hours"]
WORDS = ["Monday", "no solution", "yes", "odd", "Alice", "hyperbola", "ellipse", "increasing", "blue", "north", "true", "Tuesday"]


def latex_fraction(numerator, denominator, rng):
    return rng.choice(["\\frac{%s}{%s}", "\\dfrac{%s}{%s}", "\\tfrac{%s}{%s}"]) % (numerator, denominator)


def off(rng, value):
    """Returns another number close by."""
    return value + rng.choice([-1, 1, 2, -2, 10])


def integers(rng):
    n = rng.choice([rng.randint(-20, 20), rng.randint(100, 999), rng.randint(1000, 10**7), -rng.randint(1000, 99999)])
    m = n if rng.random() < 0.6 else off(rng, n)
    forms = [str(m), f" {m} ", f"${m}$"]
    if abs(m) >= 1000:
        forms += [f"{m:,}", f"{m:,}".replace(",", "{,}"), f"{m:,}".replace(",", ",\\!")]
    if m >= 0:
        forms += [f"{m}\\text{{ {rng.choice(UNITS)}}}", f"{m}\\ \\text{{{rng.choice(UNITS)}}}", f"\\text{{{m}}}", f"\\mathbf{{{m}}}", f"\\${m}"]
    return rng.choice(forms), str(n)


def decimals(rng):
    digits = rng.randint(1, 4)
    x = round(rng.uniform(-50, 50), digits)
    y = x if rng.random() < 0.6 else round(x + rng.choice([-1, 1]) * 10**-digits, digits)
    forms = [f"{y:.{digits}f}", f"{y:.{digits + 1}f}", f"{y:.{digits}f}\\text{{ cm}}"]
    if 0 < y < 1:
        forms.append(f"{y:.{digits}f}"[1:])
    scaled = round(y * 10**digits)
    forms.append(f"-\\frac{{{-scaled}}}{{{10**digits}}}" if scaled < 0 else f"\\frac{{{scaled}}}{{{10**digits}}}")
    return rng.choice(forms), f"{x:.{digits}f}"


def fractions(rng):
    a, b, k = rng.randint(1, 30), rng.randint(2, 30), rng.randint(2, 5)
    sign = rng.choice(["", "-"])
    c = a if rng.random() < 0.6 else a + rng.choice([1, 2, 3])
    forms = [sign + latex_fraction(c, b, rng), f"{sign}{c}/{b}", sign + latex_fraction(c * k, b * k, rng), f"{sign}{c} / {b}"]
    if sign:
        forms += [latex_fraction(f"-{c}", b, rng), latex_fraction(c, f"-{b}", rng)]
    else:
        whole, rest = divmod(c, b)
        if whole and rest:
            forms.append(f"{whole}\\frac{{{rest}}}{{{b}}}")
    if c < 10 and b < 10:
        forms += [f"{sign}\\frac{c}{b}", f"{sign}\\frac{{{c}}}{b}", f"{sign}\\frac{c}{{{b}}}"]
    forms.append(f"{sign}{c / b:.7f}")
    return rng.choice(forms), sign + "\\frac{%d}{%d}" % (a, b)


def roots(rng):
    a, b, c = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10, 11, 13, 37]), rng.randint(1, 20)
    d = b if rng.random() < 0.6 else b + 1
    whole = rng.random() < 0.5
    plain = [f"{a}\\sqrt{{{d}}}", f"\\sqrt{{{a * a * d}}}", f"{a} \\sqrt {{{d}}}", f"{a}\\cdot\\sqrt{{{d}}}", f"{a}\\times \\sqrt{{{d}}}"]
    if d < 10:
        plain.append(f"{a}\\sqrt{d}")
    if d == b and a != b:
        plain.append(f"\\frac{{{a * b}}}{{\\sqrt{{{b}}}}}")
    if not whole:
        return rng.choice(plain), f"{a}\\sqrt{{{b}}}"
    form = rng.choice(plain)
    return rng.choice([f"{c}+{form}", f"{form}+{c}", f"{form} + {c}", f"-(-{c}-{form})"]), f"{c}+{a}\\sqrt{{{b}}}"


def powers(rng):
    base, exponent = rng.randint(2, 12), rng.randint(2, 40)
    other = exponent if rng.random() < 0.6 else exponent + rng.choice([-1, 1])
    forms = [f"{base}^{{{other}}}", f"{base}^{other}" if other < 10 else f"{base}^{{{other}}}", f"{base} ^ {{{other}}}", f"{base}\\cdot {base}^{{{other - 1}}}",
             f"\\frac{{1}}{{{base}^{{-{other}}}}}"]
    if base**other < 10**15:
        forms.append(str(base**other))
    return rng.choice(forms), f"{base}^{{{exponent}}}"


def degrees(rng):
    n = rng.randint(1, 360)
    m = n if rng.random() < 0.6 else off(rng, n)
    form = rng.choice(["%d^\\circ", "%d^{\\circ}", "%d", "%d \\text{ degrees}"]) % m
    return form, rng.choice([f"{n}^\\circ", f"{n}", f"{n}^{{\\circ}}"])


def percentages(rng):
    n = rng.randint(1, 99)
    m = n if rng.random() < 0.6 else n + 1
    forms = [f"{m}\\%", f"{m}%", f"{m} \\%", f"{m}", f"{m}\\text{{ percent}}", f"{m / 100:.2f}", f"\\frac{{{m}}}{{100}}"]
    return rng.choice(forms), f"{n}\\%"


def intervals(rng):
    low, high = sorted(rng.sample(range(-20, 20), 2))
    left, right = rng.choice("(["), rng.choice(")]")
    end = high if rng.random() < 0.7 else high + 1
    close = right if rng.random() < 0.8 else {")": "]", "]": ")"}[right]
    kind = rng.random()
    if kind < 0.5:
        forms = [f"{left}{low},{end}{close}", f"{left}{low}, {end}{close}"]
        if left == "(":
            forms.append(f"\\left({low}, {end}\\right{close}")
        return rng.choice(forms), f"{left}{low}, {high}{right}"
    if kind < 0.75:
        forms = [f"(-\\infty, {low}) \\cup ({end}, \\infty)", f"(-\\infty,{low})\\cup({end},+\\infty)"]
        if end > 0:
            forms.append(f"({end},\\infty)\\cup(-\\infty,{low})")
        return rng.choice(forms), f"(-\\infty,{low})\\cup({high},\\infty)"
    forms = [f"[{low}, \\infty)", f"[{low},\\infty)", f"({low}, \\infty)"]
    return rng.choice(forms), f"[{low},\\infty)"


def tuples(rng):
    values = [rng.randint(-9, 9) for _ in range(rng.randint(2, 4))]
    changed = list(values)
    chance = rng.random()
    if chance < 0.2:
        rng.shuffle(changed)
    elif chance < 0.35:
        changed[rng.randrange(len(changed))] += 1
    separator = rng.choice([",", ", "])
    inner = separator.join(map(str, changed))
    forms = [f"({inner})", f"$({inner})$"]
    if len(changed) > 2:
        forms.append(f"\\left({inner}\\right)")
    return rng.choice(forms), "(" + ", ".join(map(str, values)) + ")"


def sets(rng):
    values = rng.sample(range(-20, 20), rng.randint(2, 4))
    changed = list(values)
    rng.shuffle(changed)
    if rng.random() < 0.3:
        changed[0] = 25
    separator = rng.choice([",", ", ", " , "])
    inner = separator.join(map(str, changed))
    forms = [inner, f"\\{{{inner}\\}}", f"\\left\\{{{inner}\\right\\}}"]
    if len(changed) == 2:
        forms += [f"{changed[0]} \\text{{ and }} {changed[1]}", f"{changed[0]}\\text{{ or }}{changed[1]}", f"{changed[0]} and {changed[1]}"]
    if rng.random() < 0.15:
        n = rng.randint(1, 9)
        m = n if rng.random() < 0.6 else n + 1
        return rng.choice([f"\\pm {m}", f"{m}, -{m}", f"-{m},{m}"]), f"\\pm {n}"
    return rng.choice(forms), ", ".join(map(str, values))


def equations(rng):
    name, n = rng.choice("xyntk"), rng.randint(-30, 30)
    m = n if rng.random() < 0.6 else off(rng, n)
    slope = rng.randint(2, 9)
    kind = rng.random()
    if kind < 0.5:
        return rng.choice([f"{name}={m}", f"{name} = {m}", f"{m}"]), rng.choice([f"{name}={n}", str(n)])
    sign = "+" if m >= 0 else "-"
    forms = [f"y={slope}x{sign}{abs(m)}", f"y = {slope}x {sign} {abs(m)}", f"{slope}x{sign}{abs(m)}", f"y={m}+{slope}x"]
    return rng.choice(forms), f"y={slope}x{'+' if n >= 0 else '-'}{abs(n)}"


def polynomials(rng):
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    c = b if rng.random() < 0.6 else b + 1
    forms = [f"(x+{a})(x+{c})", f"x^2+{a + c}x+{a * c}", f"{a * c}+{a + c}x+x^2", f"(x+{c})(x+{a})", f"x^{{2}} + {a + c}x + {a * c}", f"x(x+{a + c})+{a * c}"]
    return rng.choice(forms), f"x^2+{a + b}x+{a * b}"


def constants(rng):
    a, b = rng.randint(1, 12), rng.randint(2, 12)
    c = a if rng.random() < 0.6 else a + 1
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([f"\\frac{{{c}\\pi}}{{{b}}}", f"\\frac{{{c}}}{{{b}}}\\pi", f"{c}\\pi/{b}"]), f"\\frac{{{a}\\pi}}{{{b}}}"
    if kind == 1:
        return rng.choice([f"{c}\\pi", f"\\pi \\cdot {c}", f"{c} \\pi", f"{c}π"]), f"{a}\\pi"
    if kind == 2:
        return rng.choice([f"e^{{{c}}}", f"e^{c}" if c < 10 else f"e^{{{c}}}"]), f"e^{{{a}}}"
    return rng.choice([f"\\ln {c + 1}", f"\\ln({c + 1})", f"\\ln{{{c + 1}}}"]), f"\\ln({a + 1})"


def inequalities(rng):
    n = rng.randint(-20, 20)
    m = n if rng.random() < 0.6 else off(rng, n)
    sign = rng.choice(["<", ">", "\\le", "\\ge"])
    flipped = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}[sign]
    forms = [f"x {sign} {m}", f"{m} {flipped} x", f"x {sign}{m}"]
    if sign in ("\\le", "\\ge"):
        forms.append(f"x {sign}q {m}")
    return rng.choice(forms), f"x {sign} {n}"


def texts(rng):
    word = rng.choice(WORDS)
    other = word if rng.random() < 0.6 else rng.choice(WORDS)
    return rng.choice(["%s", "\\text{%s}", "\\textbf{%s}", "\\mathrm{%s}", "\\text{ %s }"]) % other, "\\text{%s}" % word


def choices(rng):
    letter = rng.choice("ABCDE")
    other = letter if rng.random() < 0.6 else rng.choice("ABCDE")
    return rng.choice(["%s", "\\text{%s}", "(%s)", "\\textbf{(%s)}", "\\mathrm{%s}"]) % other, letter


def matrices(rng):
    values = [[rng.randint(-9, 9) for _ in range(rng.randint(1, 2))] for _ in range(2)]
    values[1] = [rng.randint(-9, 9) for _ in values[0]]
    changed = [list(row) for row in values]
    if rng.random() < 0.4:
        changed[0][0] += 1

    def write(rows, name, separator):
        return f"\\begin{{{name}}}" + separator.join(" & ".join(map(str, row)) for row in rows) + f"\\end{{{name}}}"

    given = write(changed, rng.choice(["pmatrix", "bmatrix", "array"]), rng.choice([" \\\\ ", "\\\\"]))
    columns = "{" + "c" * len(values[0]) + "}"
    given = given.replace("{array}", "{array}" + columns, 1)
    if columns in given:
        given = rng.choice(["\\left[%s\\right]", "\\left(%s\\right)"]) % given
    return given, write(values, "pmatrix", " \\\\ ")


def labels(rng):
    """Returns a left-hand side that names the quantity of the answer."""
    n = rng.randint(1, 60)
    m = n if rng.random() < 0.6 else off(rng, n)
    if rng.random() < 0.2:
        return f"(x,y) = ({m},{n})", f"({n}, {n})"
    if rng.random() < 0.2:
        return f"f^{{-1}}(x) = \\frac{{x-{abs(m)}}}{{2}}", f"\\frac{{x-{n}}}{{2}}"
    forms = ["BC = %d", "m\\angle A = %d^\\circ", "\\text{Area} = %d", "f(2) = %d", "|z| = %d", "a+b = %d", "= %d", "\\cos\\theta = \\frac{%d}{1}"]
    return rng.choice(forms) % m, str(n)


def approximations(rng):
    n = rng.randint(2, 12)
    m = n if rng.random() < 0.6 else n + 1
    if rng.random() < 0.5:
        return f"{m}\\pi \\approx {m * 3.14159265:.2f}", f"{n}\\pi"
    return f"\\approx {m * 3.14159265:.2f}", f"{n * 3.14159265:.2f}"


KINDS = [integers, decimals, fractions, roots, powers, degrees, percentages, intervals, tuples, sets, equations, polynomials, constants, inequalities, texts,
         choices, matrices, labels, approximations]


def pairs(seed, count):
    rng = random.Random(seed)
    made = []
    for i in range(count):
        kind = KINDS[i % len(KINDS)]
        given, expected = kind(rng)
        made.append((kind.__name__, given, expected))
    return made
