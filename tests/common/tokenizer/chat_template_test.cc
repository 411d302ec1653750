#include "common/tokenizer/chat_template.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/common/tokenizer/render_source.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChatTemplateTest, ExpressionsFollowPython) {
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}",
            "3 -4 2 3.5"},
           {"{{ 7 % -3 }} {{ (-922337203685477580 * 10 - 7) % 999 }}",
            "-2 920"},
           {"{{ 2 * 3 ~ 'x' }}", "6x"},
           {"{{ not false and true }}", "True"},
           {"{{ messages[::-1][0].role }}", "assistant"},
           {"{{ 'abcd'[1:3] }}{{ 'abc'[-1] }}", "bcc"},
           {"{{ 'a,b,c'.split(',')[-1] }}", "c"},
           {"{{ messages | length - 1 }}", "1"},
           {"{{ (messages[1].content | trim).lower() }}", "a"},
           {"{{ nothing is defined }} {{ none is none }}", "False True"},
           {"{{ 'x' if false else 'y' }}", "y"},
           {"{{ {'a': [1, 'b']} | tojson }}", "{\"a\": [1, \"b\"]}"},
           {"{{ eos_token }}", "<end>"},
           {"{{ 'b' in 'abc' }} {{ 4 not in [1, 2] }}", "True True"},
           {"{{ 9007199254740993 == 9007199254740992 }}", "False"},
           {"{{ [1, {'a': 2}] | tojson(indent=1) }}",
            "[\n 1,\n {\n  \"a\": 2\n }\n]"},
           {"{{ '\xC3\xA9 x '.strip(' \xC3\xA9') }}", "x"},
           {"{{ 'a' in nothing }} {{ 'a' not in nothing }}", "False True"},
           {"{{ 20 / 2 }} {{ 150.0 }} {{ -0.5 }} {{ 0 / 3 }}",
            "10.0 150.0 -0.5 0.0"},
           {"{{ 1000000.0 * 1000000000.0 }} {{ 100000000.0 * 100000000.0 }}",
            "1000000000000000.0 1e+16"},
           {"{{ 1 / 3 }} {{ 0.0001 }} {{ 0.00025 / 10 }} {{ 1234567.5 }}",
            "0.3333333333333333 0.0001 2.5e-05 1234567.5"},
       }) {
    EXPECT_EQ(Render(source), expected) << source;
  }
}

TEST(ChatTemplateTest, BlocksTrimTheirLinesAndDashesTrimMore) {
  EXPECT_EQ(Render("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
  EXPECT_EQ(Render("a \n {{- 'b' -}} \n c"), "abc");
  EXPECT_EQ(Render("x {# note #} y\n"), "x  y");
  // A line that begins behind the newline that another block took.
  EXPECT_EQ(Render("{% if true %}\n    {% if true %}\nb\n    {% endif %}\n"
                   "{% endif %}\nc"),
            "b\nc");
  EXPECT_EQ(Render("{# a #}\n  {# b #}\nx"), "x");
  EXPECT_EQ(Render("{% if true %}\n  {{ 'a' }}{% endif %}"), "  a");
  // A comment's first sign is never its last.
  EXPECT_EQ(Render("a {#-#} b{#+#}\nc {#--#} d"), "a bcd");
  EXPECT_EQ(Render("{% if true +%}\n  {% endif +%}\nx{# a +#}\ny"), "\n\nx\ny");
}

TEST(ChatTemplateTest, LoopsHaveTheirOwnScopeAndNamespacesDoNot) {
  EXPECT_EQ(Render("{% set x = 1 %}{% for m in messages %}{% set x = 2 %}"
                   "{% endfor %}{{ x }}"),
            "1");
  EXPECT_EQ(Render("{% set n = namespace(x=0) %}{% for m in messages %}"
                   "{% set n.x = n.x + loop.index %}{% endfor %}{{ n.x }}"),
            "3");
  EXPECT_EQ(Render("{% for i in range(9) %}{% if i == 2 %}{% continue %}"
                   "{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}"
                   "{% endfor %}"),
            "013");
  // Else is for loops of which no iteration reached its end.
  EXPECT_EQ(Render("{% for i in [1, 2] %}{% break %}{% else %}a{% endfor %}"
                   "{% for i in [1, 2] %}{% continue %}{% else %}b{% endfor %}"
                   "{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}"
                   "{% else %}c{% endfor %}"),
            "ab");
}

TEST(ChatTemplateTest, WhatAnAssistantSaysMayBeMarked) {
  EXPECT_EQ(Render("{% for m in messages %}{% set x = m.role %}\n"
                   "  {% generation %}\n{{ loop.index }}{{ x }}"
                   "{% set x = 'y' %}\n  {% endgeneration %}\n|{{ x }} "
                   "{% endfor %}"),
            "1user|user 2assistant|assistant ");
  EXPECT_THAT(Render("{% generation %}x"), HasSubstr("endgeneration"));
  EXPECT_THAT(Render("{% for m in messages %}{% generation %}{% break %}"
                     "{% endgeneration %}{% endfor %}"),
              HasSubstr("break outside a loop"));
}

TEST(ChatTemplateTest, ThinkingIsUndefinedUnlessGiven) {
  const std::string source =
      "{% if enable_thinking is defined %}{{ enable_thinking }}{% else %}-"
      "{% endif %}";
  EXPECT_EQ(Render(source), "-");
  EXPECT_EQ(Render(source, {.enable_thinking = false}), "False");
}

TEST(ChatTemplateTest, ValuesStayFlatAndNeverHoldThemselves) {
  EXPECT_THAT(Render("{% set n = namespace() %}{% set n.n = n %}"),
              HasSubstr("a namespace inside another value"));
  EXPECT_THAT(Render("{% set m = messages[0] %}{% set m.role = 'x' %}"),
              HasSubstr("'m' is not a namespace"));
  EXPECT_THAT(Render("{% set n = namespace(l=[]) %}{% for i in range(99) %}"
                     "{% set n.l = [n.l] %}{% endfor %}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Render("{% set n = namespace(t='x' * 1) %}"),
              HasSubstr("'*' cannot be applied to string and int"));
  EXPECT_THAT(Render("{% set n = namespace(t='abcdefgh') %}"
                     "{% for i in range(40) %}{% set n.t = n.t ~ n.t %}"
                     "{% endfor %}"),
              HasSubstr("a value is too large"));
}

// Whatever a step works on costs more steps, so that the limit on steps is one
// on time and memory, too.
TEST(ChatTemplateTest, WhatCallsAndLookUpsGoThroughIsCounted) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_THAT(Render(repeated("{% set a = range(99999) %}", 100)),
              HasSubstr("too many steps"));
  std::string entries;
  std::string keywords;
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&entries, "'k", i, "': 0, ");
    absl::StrAppend(&keywords, "k", i, "=0, ");
  }
  EXPECT_THAT(Render("{% set d = {" + entries + "} %}" +
                     "{% for i in range(1000) %}{% if d.x %}{% endif %}"
                     "{% endfor %}"),
              HasSubstr("too many steps"));
  EXPECT_THAT(Render("{% set n = namespace(" + keywords + ") %}" +
                     "{% for i in range(1000) %}{% set n.x = 1 %}{% endfor %}"),
              HasSubstr("too many steps"));
  std::string path = "0";
  for (int i = 0; i < 1000; ++i) path += ".0";
  EXPECT_THAT(Render("{% set n = namespace(l=['a', 'a', 'a', 'a']) %}"
                     "{% for i in range(14) %}{% set n.l = n.l + n.l %}"
                     "{% endfor %}{{ n.l | selectattr('" +
                     path + "') | first }}"),
              HasSubstr("too many steps"));
  EXPECT_THAT(Render("{% set n = namespace(t='abcdefgh') %}"
                     "{% for i in range(17) %}{% set n.t = n.t ~ n.t %}"
                     "{% endfor %}{% for i in range(200) %}"
                     "{% if 'a'.startswith(n.t) %}{% endif %}{% endfor %}"),
              HasSubstr("too many steps"));
}

// These take minutes where the time grows with the square of the lengths.
TEST(ChatTemplateTest, TextsAndDictsThatAreMadeToBeSlowAreNot) {
  EXPECT_EQ(Render("{% set n = namespace(t='aaaaaaaa') %}"
                   "{% for i in range(19) %}{% set n.t = n.t ~ n.t %}"
                   "{% endfor %}{% set text = n.t ~ n.t %}"
                   "{% set mark = n.t ~ 'b' %}"
                   "{{ mark in text }} {{ text.split(mark) | length }} "
                   "{{ text | replace(mark, '') == text }}"),
            "False 1 True");
  std::string entries;
  for (int i = 0; i < 200000; ++i) {
    absl::StrAppend(&entries, "'", i, "':0,");
  }
  EXPECT_EQ(Render("{% set d = {" + entries + "} %}{{ d == d }}"), "True");
}

TEST(ChatTemplateTest, PartsAndNamesHaveLimits) {
  const std::string text =
      "{% set n = namespace(t='bbbbbbbb') %}{% for i in range(18) %}"
      "{% set n.t = n.t ~ n.t %}{% endfor %}";
  EXPECT_THAT(Render(text + "{{ n.t.split('b') | length }}"),
              HasSubstr("too many parts"));
  EXPECT_LT(Render(text + "{% set d = {} %}{{ d[n.t].x }}").size(), 1000U);
  EXPECT_THAT(Render("{{ " + std::string(5000, 'a') + " }}"),
              HasSubstr("a name is too long"));
}

TEST(ChatTemplateTest, DictsAreEqualInAnyOrder) {
  EXPECT_EQ(Render("{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} "
                   "{{ {'a': 1, 'b': 2} == {'a': 1, 'c': 2} }} "
                   "{{ {'a': 1} == {'a': 2} }}"),
            "True False False");
  EXPECT_EQ(Render("{{ 'abcabc' | replace('bc', '-') }} "
                   "{{ 'aaa' | replace('aa', 'b') }} {{ '' in 'a' }}"),
            "a-a- ba True");
}

TEST(ChatTemplateTest, ArgumentsThatWouldBePassedOverAreRefused) {
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ 'a' | tojson(separators=[',']) }}",
            "line 1: 'separators' of 'tojson'"},
           {"{{ 'a' | tojson(ensure_ascii=true) }}", "ensure_ascii"},
           {"{{ [1] | tojson(2) }}", "ensure_ascii"},
           {"{{ [1] | tojson(indent=' ') }}", "indent"},
           {"{{ 'aa' | replace('a', 'b', count=1) }}", "'count' of 'replace'"},
           {"{{ 'aa'.replace('a', 'b', 1) }}", "'replace' with 3 arguments"},
           {"{{ 'ab'.startswith('b', 1) }}", "'startswith' with 2 arguments"},
           {"{{ messages | join(attribute='role') }}", "'attribute' of 'join'"},
           {"{{ messages | sort(key='role') }}", "'key' of 'sort'"},
           {"{{ messages | map(attribute='role', default='') | list }}",
            "map needs the name of a known filter"},
           {"{{ ['a'] | map('replace', 'a', 'b') | list }}",
            "map needs the name of a known filter"},
           {"{{ namespace([1]) }}", "one dict, and keywords"}}) {
    EXPECT_THAT(Render(source), HasSubstr(expected)) << source;
  }
  EXPECT_EQ(Render("{{ 'a' | tojson(ensure_ascii=False, indent=none) }} "
                   "{{ [1, 2] | join(0) }} {{ [1, 2] | join(d='-') }} "
                   "{{ 'a b c'.split(maxsplit=-1, sep=' ') | length }} "
                   "{{ none | default(boolean=true, default_value='x') }}"),
            "\"a\" 102 1-2 3 x");
}

// As in the template of Llama 3.1.
TEST(ChatTemplateTest, SelectAndRejectSieveByATest) {
  const std::string tools = "{% set t = ['a', 'b', '', 'a'] %}";
  EXPECT_EQ(Render(tools + "{{ t | reject('equalto', 'a') | join(', ') }}"),
            "b, ");
  EXPECT_EQ(Render(tools + "{{ t | select('equalto', 'a') | join }}"), "aa");
  EXPECT_EQ(Render(tools + "{{ t | select | join }}"), "aba");
  EXPECT_THAT(Render(tools + "{{ t | select('odd') | list }}"),
              HasSubstr("the name of a known test"));
}

// As in the template of Mistral Nemo.
TEST(ChatTemplateTest, SelectattrAndRejectattrSieveByAPartOfEachItem) {
  const std::string list =
      "{% set l = [{'n': 'a', 'x': {'y': 1}}, {'n': 'b', 'x': {'y': 0}}, "
      "{'n': 'c', 'x': {}}] %}";
  for (const auto& [filter, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"selectattr('n', 'equalto', 'b')", "b"},
           {"rejectattr('n', '==', 'b')", "ac"},
           {"selectattr('n', 'ne', 'b')", "ac"},
           {"selectattr('x')", "ab"},
           {"rejectattr('x')", "c"},
           {"selectattr('x.y', 'defined')", "ab"},
           {"rejectattr('x.y')", "bc"},
           {"selectattr('z')", ""},
           {"selectattr('z', 'undefined')", "abc"}}) {
    EXPECT_EQ(
        Render(list + "{% for i in l | " + filter + " %}{{ i.n }}{% endfor %}"),
        expected)
        << filter;
  }
  EXPECT_EQ(Render("{{ [[0, 1], [2, 0]] | selectattr('1') | first | last }}"),
            "1");
  // In place of a list.
  EXPECT_EQ(Render("{{ tools | selectattr('n') | list | length }}"
                   "{{ none | select | list | length }}"),
            "00");
  EXPECT_THAT(Render(list + "{{ l | selectattr('z.y') | first }}"),
              HasSubstr("'z' is undefined"));
  EXPECT_THAT(Render(list + "{{ l | selectattr('n', 'odd') | first }}"),
              HasSubstr("the name of a known test"));
  EXPECT_THAT(Render(list + "{{ l | selectattr | first }}"),
              HasSubstr("the name of an attribute"));
}

// In jinja2 one is true even if nothing comes out of it.
TEST(ChatTemplateTest, AGeneratorMayOnlyBeGoneThrough) {
  const std::string list = "{% set l = ['a', '', 'b'] %}";
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ l | select | reject('eq', 'a') | join }}", "b"},
           {"{{ (l | select) | first }}", "a"},
           {"{{ 'b' in l | select }}", "True"},
           {"{{ '' not in l | select }}", "True"},
           {"{% for x in l | select if x != 'a' %}{{ x }}{% endfor %}", "b"},
           {"{% for k, v in {'k': 'v'} | items %}{{ k ~ v }}{% endfor %}",
            "kv"}}) {
    EXPECT_EQ(Render(list + source), expected) << source;
  }
  for (const char* source : {"{% if l | select %}{% endif %}",
                             "{% if a %}{% elif not l | select %}{% endif %}",
                             "{% set x = l | select %}",
                             "{% set x.y = l | select %}",
                             "{{ l | select }}",
                             "{{ l | select or 1 }}",
                             "{{ l | select | length }}",
                             "{{ l | select | last }}",
                             "{{ l | select | tojson }}",
                             "{{ l | select | default([]) }}",
                             "{{ (l | select)[0] }}",
                             "{{ (l | select)[1:] }}",
                             "{{ l | select is defined }}",
                             "{{ l | select in l }}",
                             "{{ [l | select] }}",
                             "{{ {'k': l | select} }}",
                             "{{ namespace(x=l | select) }}",
                             "{{ 'a'.split(l | select) }}",
                             "{% for x in l if l | select %}{% endfor %}",
                             "{% for x in l | select or l %}{% endfor %}"}) {
    EXPECT_THAT(Render(std::string("\n") + source),
                HasSubstr("line 2: 'select' makes a generator"))
        << source;
  }
  EXPECT_THAT(Render("{% if {} | items %}{% endif %}"),
              HasSubstr("line 1: 'items' makes a generator"));
}

// As jinja2 reads them.
TEST(ChatTemplateTest, StringsHaveTheEscapesOfPython) {
  for (const auto& [literal, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {R"(\\ \' \" ')", "\\ ' \" '"},
           {R"(\a\b\f\n\r\t\v)", "\a\b\f\n\r\t\v"},
           {"a\\\nb\nc", "ab\nc"},
           {R"(\101\7\1010\777)", "A\aA0\u01ff"},
           {R"(\x41\xe9\u4e2d\U0001f600)", "A\u00e9\u4e2d\U0001f600"},
           {R"(\d\{\8)", "\\d\\{\\8"},
           {"\u00e9\u4e2d\U0001f600", "\u00e9\u4e2d\U0001f600"},
           // The backslash is before another one, that of the letter's escape.
           {"\\\u00e9\\\u4e2d\\\U0001f600", "\\xe9\\u4e2d\\U0001f600"}}) {
    EXPECT_EQ(Render("{{ \"" + literal + "\" }}"), expected) << literal;
  }
  for (const auto& [literal, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {R"(\x4)", "'4' for 2"},
           {R"(\u4e2-)", "'4e2-' for 4"},
           {R"(\U00110000)", "'00110000' for 8"},
           {R"(\ud83d\ude00)", "'d83d' for 4"},
           {R"(\N{BULLET})", "the escape \\N"}}) {
    EXPECT_THAT(Render("\n{{ '" + literal + "' }}"),
                AllOf(HasSubstr("line 2: "), HasSubstr(expected)));
  }
}

TEST(ChatTemplateTest, ThereIsNoClock) {
  EXPECT_EQ(Render("{% if strftime_now is defined %}{{ strftime_now('%d') }}"
                   "{% else %}fixed{% endif %}"),
            "fixed");
  EXPECT_THAT(Render("{{ strftime_now('%d') }}"),
              HasSubstr("write a date in place of this call"));
}

TEST(ChatTemplateTest, TextsMustBeUtf8) {
  const auto loaded = LoadSource("{{ messages[0].content }}");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(ExitCodeOf((*loaded)->Render({{"user", "\xFF"}}, {}).status()),
            ExitCode::kData);
}

TEST(ChatTemplateTest, ErrorsNameTheConstructAndItsLine) {
  EXPECT_THAT(Render("\n{{ x | shuffle }}"),
              HasSubstr("line 2: the filter "
                        "'shuffle'"));
  EXPECT_THAT(Render("{{ [1, 2] |\nbatch(2) }}"),
              HasSubstr("line 2: the filter 'batch'"));
  EXPECT_THAT(Render("{% include 'x' %}"), HasSubstr("the tag 'include'"));
  EXPECT_THAT(Render("{{ nothing.field }}"), HasSubstr("'nothing'"));
  EXPECT_THAT(Render("{{ raise_exception('no') }}"), HasSubstr("no"));
  EXPECT_THAT(Render("{% for i in range(100000) %}{% for j in range(100000) %}"
                     "{% endfor %}{% endfor %}"),
              HasSubstr("too many steps"));
  EXPECT_THAT(Render("{{ " + std::string(500, '(') + "1" +
                     std::string(500, ')') + " }}"),
              HasSubstr("too deeply"));
  EXPECT_EQ(ExitCodeOf(LoadSource("{% if %}").status()), ExitCode::kData);
}

}  // namespace
}  // namespace dapd
