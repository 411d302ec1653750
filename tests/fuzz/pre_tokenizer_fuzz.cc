// Input: a text.
// The hand-written scanners cut where ICU's regular expressions cut.
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/tokenizer/newer_characters.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr size_t kMaxBytes = 4096;

struct Pattern {
  nlohmann::json rule;      // as in tokenizer.json
  std::string icu_pattern;  // the same for ICU, whose \s matches less
};

std::string ForIcu(std::string pattern) {
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"\\s", "\\p{White_Space}"},
        {"\\S", "\\P{White_Space}"}}) {
    for (size_t at = pattern.find(from); at != std::string::npos;
         at = pattern.find(from, at + to.size())) {
      pattern.replace(at, from.size(), to);
    }
  }
  return pattern;
}

// Real tokenizers have this form: ByteLevel at the end writes bytes and does
// not cut.
Pattern Split(const std::string& regex) {
  const nlohmann::json split = {{"type", "Split"},
                                {"pattern", {{"Regex", regex}}},
                                {"behavior", "Isolated"}};
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{{"type", "Sequence"},
           {"pretokenizers", nlohmann::json::array({split, bytes})}},
          ForIcu(regex)};
}

std::vector<Pattern> Patterns() {
  const std::string start =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  const std::string end =
      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string capital = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string prefix = R"([^\r\n\p{L}\p{N}]?)";
  return {Split(prefix + capital + "*" + small + "+|" + prefix + capital + "+" +
                small + R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" +
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"),
          Split(start + R"(\p{N})" + end),
          Split(start + R"(\p{N}{1,3})" + end),
          {{{"type", "ByteLevel"}, {"add_prefix_space", false}},
           ForIcu(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+)"
                  R"(| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")}};
}

// Returns the lengths of the matches in UTF-16 units; the matches must leave no
// gap.
std::vector<int32_t> IcuLengths(const icu::UnicodeString& text,
                                const std::string& pattern) {
  UErrorCode error = U_ZERO_ERROR;
  icu::RegexMatcher matcher(
      icu::UnicodeString::fromUTF8(pattern), text, 0, error);
  Check(U_SUCCESS(error) != 0, "ICU takes the pattern");
  std::vector<int32_t> lengths;
  int32_t position = 0;
  while (matcher.find(error) != 0) {
    Check(matcher.start(error) == position, "the pattern matches everywhere");
    position = matcher.end(error);
    lengths.push_back(position - matcher.start(error));
  }
  Check(position == text.length(), "the pattern matches to the end");
  return lengths;
}

void Run(absl::string_view bytes) {
  const std::string text(bytes.substr(0, kMaxBytes));
  const auto points = DecodeUtf8(text);
  if (!points.ok()) return;
  icu::UnicodeString unicode;
  // ICU may not know new characters, so old characters stand in for them.
  for (const CodePoint& point : *points) {
    unicode.append(OldStandIn(point.value));
  }
  static const auto& patterns = *new std::vector<Pattern>(Patterns());
  for (const Pattern& pattern : patterns) {
    const PreTokenizer splitter = PreTokenizer::Parse(pattern.rule).value();
    std::vector<int32_t> lengths;
    std::string joined;
    const CutText cut = splitter.Split(text).value();
    for (const Span word : cut.words) {
      absl::StrAppend(&joined, cut.Bytes(word));
      int32_t length = 0;
      const std::vector<CodePoint> characters =
          DecodeUtf8(cut.Bytes(word)).value();
      for (const CodePoint& point : characters) {
        length += OldStandIn(point.value) > 0xFFFF ? 2 : 1;
      }
      lengths.push_back(length);
    }
    Check(joined == text, "there is no gap, and the words reach to the end");
    Check(lengths == IcuLengths(unicode, pattern.icu_pattern),
          "scanner and regular expression agree");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
