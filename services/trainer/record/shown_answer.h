// Answers as people get to see them, on the status page, in the report and in a
// terminal: a few of each step's rollouts and of each evaluation's answers,
// with problem and grade, and cut to a size that a page can hold. A text is a
// model's and may hold any characters: whoever shows it escapes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/generation/decode_request.h"

namespace dapd {

// So many of a step and of an evaluation.
inline constexpr size_t kStepAnswers = 4;
inline constexpr size_t kHeldOutAnswers = 8;

// Bytes that are kept of an answer, of a problem, and of an id or a result.
inline constexpr size_t kMaxShownText = 4096;
inline constexpr size_t kMaxShownProblem = 2048;
inline constexpr size_t kMaxShownResult = 512;

enum class AnswerGrade {
  kRight,
  kWrong,
  kNoAnswer,  // it ended without a box
  kCut,       // it has no box, and reached the length limit
  kUngraded,  // the problem has nothing to grade it against
};

// "right", "wrong", "no_answer", "cut", "ungraded".
absl::string_view NameOf(AnswerGrade grade);
// Nothing for any other name.
std::optional<AnswerGrade> AnswerGradeOf(absl::string_view name);

// Of an answer with these grades (common/data/grade_answer.h).
AnswerGrade GradeOf(bool has_expected,
                    bool has_box,
                    bool correct,
                    FinishReason finish_reason);

struct ShownAnswer {
  int64_t place = 0;  // in the batch, or among the held-out problems
  std::string id;     // the problem's
  std::string problem;
  std::string text;
  std::string expected;   // empty: nothing
  std::string extracted;  // what its box holds; empty without one
  AnswerGrade grade = AnswerGrade::kUngraded;
  int64_t tokens = 0;  // its end token included
  bool operator==(const ShownAnswer&) const = default;
};

// Places of at most `count` of `total` things, as far apart as they can be: the
// same of a resumed run as of one that was never interrupted.
std::vector<size_t> SpreadPlaces(size_t total, size_t count);

// Well-formed UTF-8 of at most `max_bytes`, which are at least 256: of a longer
// text the beginning and the end, and in place of the middle a line that counts
// the characters left out.
std::string CutMiddle(absl::string_view text, size_t max_bytes);

// With all its texts cut. Cutting once more changes nothing.
ShownAnswer CutToShow(ShownAnswer answer);

// [{"place", "id", "problem", "text", "expected", "extracted", "grade",
//   "tokens"}]
nlohmann::ordered_json ToJson(const std::vector<ShownAnswer>& answers);
// Cut again, whoever wrote them. DATA_LOSS, naming `where`, for anything else.
absl::StatusOr<std::vector<ShownAnswer>> ParseShownAnswers(
    const nlohmann::ordered_json& json, const std::string& where);

// Held-out answers to one problem by two policies.
struct AnswerPair {
  std::optional<ShownAnswer> before;
  std::optional<ShownAnswer> after;
};

// By problem, in the order of `before`; then those that `after` alone has, as
// where evaluation.path has changed meanwhile.
std::vector<AnswerPair> PairAnswers(const std::vector<ShownAnswer>& before,
                                    const std::vector<ShownAnswer>& after);

}  // namespace dapd
