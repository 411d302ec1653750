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
  // This line begins behind a newline that the other block took.
  EXPECT_EQ(Render("{% if true %}\n    {% if true %}\nb\n    {% endif %}\n"
                   "{% endif %}\nc"),
            "b\nc");
  EXPECT_EQ(Render("{# a #}\n  {# b #}\nx"), "x");
  EXPECT_EQ(Render("{% if true %}\n  {{ 'a' }}{% endif %}"), "  a");
  // The first sign in a comment never counts as its last.
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
  // `else` runs if no iteration of the loop reached its end.
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
  EXPECT_THAT(Render("{{ [1].append }}{{ [1].append(2) }}"),
              HasSubstr("'append' would change a value"));
  EXPECT_THAT(Render("{% set n = namespace(t='abcdefgh') %}"
                     "{% for i in range(40) %}{% set n.t = n.t ~ n.t %}"
                     "{% endfor %}"),
              HasSubstr("a value is too large"));
}

// Work on larger values costs more steps, so the limit on steps also limits
// time and memory.
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

// These would take minutes if the time grew with the square of the lengths.
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

// A result that would be too large is refused before it is built.
TEST(ChatTemplateTest, WhatWouldBecomeTooLargeIsNotBuilt) {
  const std::vector<std::string> sources = {
      "'a' * 10**9",
      "10**9 * 'ab'",
      "[1, 2] * 10**9",
      "(1,) * 10**9",
      "'%1000000000d' % 1",
      "'%.*f' % (10**9, 1.5)",
      "'{:>1000000000}'.format('a')",
      "'{:.1000000000f}'.format(1.5)",
      "'{:01000000000,}'.format(1)",
      "'a' | center(10**9)",
      "'a'.ljust(10**9)",
      "'1'.zfill(10**9)",
      "'\t'.expandtabs(10**9)",
      "'a' | indent(10**9)",
      "[1] | batch(10**9, 0) | list",
      "[1] | slice(10**9) | list",
      "('a' * 10**6).replace('a', 'b' * 10**6)",
      "('a' * 10**6).replace('', 'b' * 10**6)",
      "('a' * 10**6).join(range(99) | map('string'))",
      "range(10**9)",
      "[[1] * 10**5] * 10**5",
      "'a' * 10**6 ~ [['a' * 10**6] * 99] * 99"};
  std::string all;
  for (const std::string& source : sources) {
    absl::StrAppend(
        &all, "{% if messages[0].content == ", "'", all.size(), "'");
    absl::StrAppend(&all, " %}{{ ", source, " }}{% endif %}");
  }
  const auto loaded = LoadSource(all);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  size_t place = 0;
  for (const std::string& source : sources) {
    const std::string name = absl::StrCat(place);
    EXPECT_EQ((*loaded)->Render({{"user", name}}, {}).status().code(),
              absl::StatusCode::kResourceExhausted)
        << source;
    place = all.find("{% if", place + 1);
  }
  EXPECT_THAT(Render("{{ 10**19 }}"), HasSubstr("overflows"));
}

TEST(ChatTemplateTest, ArgumentsThatAFilterDoesNotTakeAreRefused) {
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ 'a' | tojson(separators=[',']) }}", "two separators"},
           {"{{ 'aa' | replace('a', 'b', times=1) }}", "'times'"},
           {"{{ 'aa'.replace('a', 'b', count=1) }}", "'count'"},
           {"{{ 'a' | upper(1) }}", "'upper' takes no more than 0 arguments"},
           {"{{ 'a' | replace('a') }}", "needs the argument 'new'"},
           {"{{ messages | sort(key='role') }}", "'key'"},
           {"{{ messages | join('', d='') }}", "'d', or got it twice"},
           {"{{ [1] | map('nothing') | list }}", "no filter 'nothing'"},
           {"{{ namespace([1]) }}", "cannot be iterated"}}) {
    EXPECT_THAT(Render(source), HasSubstr(expected)) << source;
  }
}

// The template of Llama 3.1 uses these filters.
TEST(ChatTemplateTest, SelectAndRejectSieveByATest) {
  const std::string tools = "{% set t = ['a', 'b', '', 'a'] %}";
  EXPECT_EQ(Render(tools + "{{ t | reject('equalto', 'a') | join(', ') }}"),
            "b, ");
  EXPECT_EQ(Render(tools + "{{ t | select('equalto', 'a') | join }}"), "aa");
  EXPECT_EQ(Render(tools + "{{ t | select | join }}"), "aba");
  EXPECT_THAT(Render(tools + "{{ t | select('strange') | list }}"),
              HasSubstr("there is no test 'strange'"));
}

// The template of Mistral Nemo uses these filters.
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
  // These stand in place of a list.
  EXPECT_EQ(Render("{{ tools | selectattr('n') | list | length }}"
                   "{{ none | select | list | length }}"),
            "00");
  EXPECT_THAT(Render(list + "{{ l | selectattr('z.y') | first }}"),
              HasSubstr("'z' is undefined"));
  EXPECT_THAT(Render(list + "{{ l | selectattr('n', 1) | first }}"),
              HasSubstr("the name of a test"));
  EXPECT_THAT(Render(list + "{{ l | selectattr | first }}"),
              HasSubstr("the name of an attribute"));
}

// As in jinja2, a generator is true even if it yields nothing, has no length
// and no index, and is empty after an iteration.
TEST(ChatTemplateTest, AGeneratorGivesItsItemsOnce) {
  const std::string list = "{% set l = ['a', '', 'b'] %}";
  for (const auto& [source, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"{{ l | select | reject('eq', 'a') | join }}", "b"},
           {"{{ (l | select) | first }}", "a"},
           {"{{ 'b' in l | select }}", "True"},
           {"{% for x in l | select if x != 'a' %}{{ x }}{% endfor %}", "b"},
           {"{% if [] | select %}yes{% endif %}", "yes"},
           {"{% set g = l | select %}{{ g | join }}-{{ g | join }}", "ab-"},
           {"{% set g = l | select %}{{ g | first }}{{ g | list }}", "a['b']"},
           {"{% set g = l | map('nothing') %}{{ g is defined }}", "True"},
           {"{{ (l | select)[0] is defined }}", "False"}}) {
    EXPECT_EQ(Render(list + source), expected) << source;
  }
  for (const char* source : {"{{ l | select }}",
                             "{{ l | select | length }}",
                             "{{ l | select | last }}",
                             "{{ l | select | tojson }}",
                             "{{ (l | select)[1:] }}",
                             "{{ l | select in l | join }}"}) {
    EXPECT_THAT(Render(std::string("\n") + source), HasSubstr("line 2: "))
        << source;
  }
  // Items that a generator goes through are counted.
  EXPECT_THAT(Render("{% set t = 'a' * 10**6 %}{% for i in range(10**4) %}"
                     "{{ [t] | map('upper') | select | first | length }}"
                     "{% endfor %}"),
              HasSubstr("too many steps"));
}

// Tests where jinja2 looks a name up when it reaches it, and where it does so
// before.
TEST(ChatTemplateTest, NamesAreLookedUpWhereJinjaDoes) {
  for (const char* source :
       {"{% if tools %}{{ tools | from_json }}{% endif %}x",
        "{% if tools is strange %}{% endif %}",
        "{{ ('a' | strange) if tools else 'x' }}",
        "{% if tools %}{% for t in tools | strange %}{% endfor %}{% endif "
        "%}x"}) {
    EXPECT_TRUE(LoadSource(source).ok()) << source;
  }
  for (const char* source :
       {"{{ tools | strange }}",
        "{% if tools %}{% for t in tools %}{{ t | strange }}{% endfor %}"
        "{% endif %}",
        "{% for t in tools if t is strange %}{% endfor %}",
        "{% macro f(a=1 | strange) %}{% endmacro %}",
        "{% set x | strange %}{% endset %}"}) {
    EXPECT_THAT(std::string(LoadSource(source).status().message()),
                AllOf(HasSubstr("line 1: there is no"), HasSubstr("'strange'")))
        << source;
  }
  EXPECT_EQ(Render("{% if none %}{{ strange() }}{{ 'a'.strange() }}"
                   "{% include 'x' %}{% endif %}x"),
            "x");
  EXPECT_THAT(Render("{{ strange() }}"), HasSubstr("'strange' is called"));
  EXPECT_THAT(Render("{{ 'a'.encode() }}"),
              HasSubstr("the method 'encode' is not supported"));
}

// jinja2 reads the literals in this way.
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
           // The literal's backslash escapes the backslash of the letter's own
           // escape.
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
              HasSubstr("line 2: there is no filter 'shuffle'"));
  EXPECT_THAT(Render("{{ [1, 2] |\nrandom }}"),
              HasSubstr("line 2: the filter 'random'"));
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
