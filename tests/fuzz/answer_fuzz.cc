// Input: two texts with a zero byte between them.
// The found box is the box of a slow search; equality is symmetric except for
// equations, and an answer equals itself.
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/check.h"
#include "common/data/grade_answer.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr size_t kMaxBytes = 2000;

// Returns whether the brace follows an odd number of backslashes that begin no
// earlier than `begin`.
bool IsWritten(const std::string& text, size_t begin, size_t brace) {
  size_t backslashes = 0;
  while (brace - backslashes > begin && text[brace - backslashes - 1] == '\\') {
    ++backslashes;
  }
  return backslashes % 2 == 1;
}

// Searches backwards from the last opening, and follows each opening to its
// end.
std::optional<std::string> SlowBox(const std::string& text) {
  const std::string open = "\\boxed{";
  for (size_t at = text.rfind(open); at != std::string::npos;
       at = at == 0 ? std::string::npos : text.rfind(open, at - 1)) {
    const size_t begin = at + open.size();
    int depth = 1;
    for (size_t i = begin; i < text.size(); ++i) {
      if (IsWritten(text, begin, i)) continue;
      depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (depth == 0) return text.substr(begin, i - begin);
    }
  }
  return std::nullopt;
}

bool MayBeEquation(const std::string& text) {
  return absl::StrContains(text, "=") || absl::StrContains(text, "\\approx") ||
         absl::StrContains(text, "\\equiv") ||
         absl::StrContains(text, "\xE2\x89\x88");
}

void Run(InputReader input) {
  const std::string a = input.Text().substr(0, kMaxBytes);
  const std::string b = input.Rest().substr(0, kMaxBytes);
  const std::optional<std::string> slow = SlowBox(a);
  const std::optional<std::string> fast = ExtractBoxed(a);
  Check(fast.has_value() || !slow.has_value(), "every box is found");
  const size_t box = a.find("box");
  if (slow.has_value() && a.find("box", box + 1) == std::string::npos) {
    Check(*fast == absl::StripAsciiWhitespace(*slow),
          "fast and slow search agree");
  }
  const bool equal = AnswersEqual(a, b);
  Check(equal == AnswersEqual(b, a) || MayBeEquation(a) || MayBeEquation(b),
        "equality is symmetric");
  Check(!equal || AnswersEqual(a, a), "an equal answer equals itself");
  const Grade grade = GradeAnswer(a, b);
  Check(grade.has_box == fast.has_value(), "the box is reported");
  Check(!grade.correct || grade.has_box, "only a boxed answer is correct");
  const Grade boxed = GradeAnswer(absl::StrCat("So \\boxed{", b, "}."), b);
  const bool balanced = SlowBox(absl::StrCat("\\boxed{", b, "}")) == b;
  // If a box is within another box, the inner box counts.
  const bool has_box = absl::StrContains(b, "box");
  Check(!balanced || has_box || boxed.correct == AnswersEqual(b, b),
        "a boxed answer is graded as without its box");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
