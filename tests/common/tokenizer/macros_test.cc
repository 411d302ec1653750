// Tests macros and the bodies of {% call %}, {% set %} and {% filter %}.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/tokenizer/render_source.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The template of gpt-oss has its macros in front of their calls.
TEST(MacrosTest, AMacroIsATextWithParameters) {
  const std::string macro =
      "{%- macro tag(name, content='-', mark=name) -%}\n"
      "  <{{ name }}{{ mark }}>{{ content }}\n"
      "{%- endmacro -%}\n";
  for (const auto& [call, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"tag('a')", "<aa>-"},
           {"tag('a', 'b', 'c')", "<ac>b"},
           {"tag(mark='m', name='n')", "<nm>-"},
           {"tag('a', none)", "<aa>None"},
           {"tag()", "<>-"},
           {"tag('a') | upper ~ tag('b') | length", "<AA>-5"},
           {"tag(tag('a'), mark='')", "<<aa>->-"},
           {"tag is defined", "True"},
           {"tug is defined", "False"},
           {"'y' if tag else 'n'", "y"}}) {
    EXPECT_EQ(Render(macro + "{{ " + call + " }}"), expected) << call;
  }
}

TEST(MacrosTest, AMacroSeesWhereItStandsAndNotWhoCallsIt) {
  EXPECT_EQ(Render("{% macro f() %}{{ x }}{{ loop is defined }}{% endmacro %}"
                   "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}"
                   "{{ f() }}{% endfor %}"),
            "1False1False");
  EXPECT_EQ(Render("{% set x = 1 %}{% macro f(y) %}{% set x = y %}{{ x }}"
                   "{% endmacro %}{{ f(2) }}{{ x }}"),
            "21");
  EXPECT_EQ(Render("{% set n = namespace(x=0) %}{% macro f() %}"
                   "{% set n.x = n.x + 1 %}{% endmacro %}"
                   "{{ f() }}{{ f() }}{{ n.x }}"),
            "2");
  EXPECT_EQ(Render("{% for m in messages %}{% macro f() %}{{ m.role[0] }}"
                   "{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}"
                   "{{ f is defined }}"),
            "u1a2False");
}

TEST(MacrosTest, MacrosMayCallEachOtherAndThemselves) {
  EXPECT_EQ(Render("{% macro down(n) %}{{ n }}{% if n %}{{ down(n - 1) }}"
                   "{% endif %}{% endmacro %}{{ down(9) }}"),
            "9876543210");
  EXPECT_EQ(Render("{% macro even(n) %}{{ odd(n - 1) if n else 'even' }}"
                   "{% endmacro %}{% macro odd(n) %}"
                   "{{ even(n - 1) if n else 'odd' }}{% endmacro %}"
                   "{{ even(7) }}"),
            "odd");
}

TEST(MacrosTest, ACallHandsItsBodyToTheMacro) {
  EXPECT_EQ(Render("{% macro each(list) %}{% for x in list %}"
                   "{{ loop.index }}{{ caller(x, mark='!') }}{% endfor %}"
                   "{% endmacro %}{% set x = 'outer' %}"
                   "{% call(y, mark='?') each(['a', 'b']) %}"
                   "({{ x }} {{ y }}{{ mark }}){% endcall %}"),
            "1(outer a!)2(outer b!)");
  EXPECT_EQ(Render("{% macro twice() %}{{ caller() }}{{ caller() }}"
                   "{% endmacro %}{% call twice() %}{% call twice() %}x"
                   "{% endcall %}y{% endcall %}"),
            "xxyxxy");
  EXPECT_EQ(Render("{% macro f() %}{{ caller is defined }}{% endmacro %}"
                   "{{ f() }}{% call f() %}{% endcall %}"),
            "FalseTrue");
}

TEST(MacrosTest, ABodyIsSetOrFiltered) {
  EXPECT_EQ(Render("{% set x %}\n  {{ messages | length }}\n"
                   "{% set y = 1 %}{% endset %}[{{ x }}]{{ y is defined }}"),
            "[  2\n]False");
  EXPECT_EQ(Render("{% set x | trim | upper %} a {% endset %}[{{ x }}]"),
            "[A]");
  EXPECT_EQ(Render("{% set n = namespace() %}{% for m in messages %}"
                   "{% set n.x %}{{ n.x }}{{ m.role }};{% endset %}"
                   "{% endfor %}{{ n.x }}"),
            "user;assistant;");
  EXPECT_EQ(Render("a {% filter trim | replace('b', 'c') %} b{% endfilter %}"),
            "a c");
}

TEST(MacrosTest, ErrorsNameTheMacroAndTheLine) {
  const std::string macro = "{% macro f(a, b=1) %}{{ a.x.y }}{% endmacro %}\n";
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ f(1, 2, 3) }}", "line 2: the macro 'f' takes no more than 2"},
           {"{{ f(1, c=2) }}", "line 2: the macro 'f' takes no argument 'c'"},
           {"{{ f(1, a=2) }}", "line 2: the macro 'f' takes no argument 'a'"},
           {"{{ f({}) }}", "line 1: 'x' is undefined"},
           {"{{ g() }}", "line 2: 'g' is called and is undefined"},
           {"{{ {}['f']() }}", "line 2: 'f' is called and is undefined"},
           {"{{ f }}", "<Macro 'f'>"},
           {"{{ [f] }}", "line 2: a macro inside another value"},
           {"{{ dict(x=f) }}", "line 2: a macro inside another value"},
           {"{% set n = namespace() %}{% set n.f = f %}",
            "line 2: a macro inside another value"},
           {"{% set f = 1 %}{{ f() }}", "line 2: a int cannot be called"},
           {"{% call f %}{% endcall %}", "line 2: 'call' needs the call"},
           {"{% call f() %}", "expected {% endcall %}"},
           {"{% macro g(a, a) %}{% endmacro %}", "'a' is a parameter twice"},
           {"{% macro g(a=1, b) %}{% endmacro %}", "without a default"},
           {"{% macro g %}{% endmacro %}", "line 2: expected '('"},
           {"{% filter %}{% endfilter %}", "expected a name"},
           {"{% set x, y %}{% endset %}", "cannot be unpacked into 2 names"},
           {"{% set x + 1 %}{% endset %}", "'set' needs a '='"},
           {"{% for m in messages %}{% macro g() %}{% break %}{% endmacro %}"
            "{% endfor %}",
            "break outside a loop"}}) {
    EXPECT_THAT(Render(macro + source), HasSubstr(expected)) << source;
  }
  EXPECT_THAT(Render("{{ late() }}{% macro late() %}{% endmacro %}"),
              HasSubstr("'late' is called and is undefined"));
}

TEST(MacrosTest, MacrosHaveLimits) {
  EXPECT_THAT(Render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("macros call each other, or themselves, too deeply"));
  // Each call has many levels of blocks and expressions.
  std::string deep;
  std::string closed;
  for (int i = 0; i < 90; ++i) {
    deep += "{% if true %}";
    closed += "{% endif %}";
  }
  EXPECT_THAT(
      Render("{% macro f() %}" + deep + "{{ " + std::string(90, '[') + "f()" +
             std::string(90, ']') + " }}" + closed + "{% endmacro %}{{ f() }}"),
      HasSubstr("too deeply"));
  EXPECT_THAT(Render("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}"
                     "{% endif %}{% endmacro %}{{ f(30) }}"),
              HasSubstr("too many steps"));
  // The output of a macro counts while another macro writes.
  EXPECT_THAT(Render("{% macro f(n) %}{% for i in range(99) %}{{ t }}"
                     "{% endfor %}{{ f(n - 1) if n }}{% endmacro %}"
                     "{% set n = namespace(t='abcdefgh') %}"
                     "{% for i in range(13) %}{% set n.t = n.t ~ n.t %}"
                     "{% endfor %}{% set t = n.t %}{{ f(9) }}"),
              HasSubstr("output is too long"));
}

TEST(MacrosTest, ItemsAreMappedAndSorted) {
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"messages | map(attribute='role') | join(' ')", "user assistant"},
           {"['a', 'b'] | map('upper') | join", "AB"},
           {"[[1, 2], [3]] | map('length') | list | tojson", "[2, 1]"},
           {"none | map('upper') | list | length", "0"},
           {"['b', 'A', 'c'] | sort | join", "Abc"},
           {"['b', 'A', 'c'] | sort(reverse=true) | join", "cbA"},
           {"['b', 'B', 'a'] | sort(case_sensitive=true) | join", "Bab"},
           {"[3, 1.5, true] | sort | tojson", "[true, 1.5, 3]"},
           {"(messages | sort(attribute='role'))[0].role", "assistant"},
           {"{'b': 1, 'A': 2} | dictsort | tojson", "[[\"A\", 2], [\"b\", 1]]"},
           {"{'b': 1, 'A': 2} | dictsort(by='value') | tojson",
            "[[\"b\", 1], [\"A\", 2]]"},
           {"{'b': 1, 'A': 2} | dictsort(true, reverse=true) | tojson",
            "[[\"b\", 1], [\"A\", 2]]"},
           {"dict({'a': 1, 'b': 2}, b=3) | tojson", "{\"a\": 1, \"b\": 3}"},
           {"{'a': 1, 'b': 2, 'a': 3} | tojson", "{\"a\": 3, \"b\": 2}"},
           {"namespace({'a': 1}).a", "1"},
           {"[['a', 'b']].0.1", "b"}}) {
    EXPECT_EQ(Render("{{ " + source + " }}"), expected) << source;
  }
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"['a', 1] | sort", "'<' cannot be applied to int and string"},
           {"['a'] | map('shuffle') | list", "there is no filter 'shuffle'"},
           {"['a'] | map | list", "the name of a filter"},
           {"['a'] | map('upper')", "a generator cannot be printed"},
           {"'a' | dictsort", "dictsort needs a dict"},
           {"('a' | safe).upper()", "a text that 'safe' or 'escape' gave"},
           {"[].append(1)", "'append' would change a value"}}) {
    EXPECT_THAT(Render("{{ " + source + " }}"),
                AllOf(HasSubstr("line 1: "), HasSubstr(expected)));
  }
  // Lists of letters take many times the memory of the texts.
  EXPECT_THAT(Render("{% set n = namespace(t='abcdefgh') %}"
                     "{% for i in range(13) %}{% set n.t = n.t ~ n.t %}"
                     "{% endfor %}{% set l = [n.t, n.t, n.t, n.t] %}"
                     "{% set l = l + l + l + l + l %}"
                     "{{ l | map('list') | list | length }}"),
              HasSubstr("map builds too large a list"));
}

TEST(MacrosTest, TitlesAreAsInPythonAndInJinja) {
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"'uSER' | capitalize", "User"},
           {"'\u00e9T\u00c9'.capitalize()", "\u00c9t\u00e9"},
           {"'\u00df\u00df' | capitalize", "Ss\u00df"},
           {"'\u01c6A' | capitalize", "\u01c5a"},
           {"'A\u03a3' | capitalize", "A\u03c2"},
           {"' aB'.capitalize() ~ ''.capitalize()", " ab"},
           {"\"they're x1y\".title()", "They'Re X1Y"},
           {"\"they're x1y-z (a)\" | title", "They're X1y-Z (A)"},
           {"'\u01c6a' | title ~ '\u01c6a'.title()", "\u01c4a\u01c5a"}}) {
    EXPECT_EQ(Render("{{ " + source + " }}"), expected) << source;
  }
}

}  // namespace
}  // namespace dapd
