// Prompts: the messages of all views, from the section `prompts`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/prompt_template.h"

namespace dapd {

// Returns one line, with its key, for each problem of the templates: a missing
// field, or a field that this message must not show.
std::vector<std::string> FindPromptProblems(const PromptsSection& section);

// The field of the row's privileged text, which may stand in place of
// {reference}: a column that data.context_column renames.
inline constexpr char kContextField[] = "context";

class Prompts {
 public:
  // The templates of the release.
  Prompts() : Prompts(PromptsSection()) {}
  // The templates of `section`, in which FindPromptProblems found no problem
  // (LoadConfig has checked them).
  explicit Prompts(const PromptsSection& section);

  // Fields that stand for columns of the row get their texts from `columns`, by
  // the name of the field.

  // Returns the system message of prompts.system; nothing if the key is empty.
  std::optional<std::string> System(
      absl::string_view problem,
      const PromptColumns& columns = NoColumns()) const;
  // Returns the message for a problem alone, which the sampler gets.
  std::string None(absl::string_view problem,
                   const PromptColumns& columns = NoColumns()) const;
  // Returns the messages that show a problem with an answer: as privileged
  // context, and as a demonstration of SDFT.
  std::string Privileged(absl::string_view problem,
                         absl::string_view shown,
                         const PromptColumns& columns = NoColumns()) const;
  std::string Demonstration(absl::string_view problem,
                            absl::string_view shown,
                            const PromptColumns& columns = NoColumns()) const;
  // Returns the message of SDPO's self-teacher: the problem; `shown`, another
  // answer that is correct, if there is one; and `feedback` on the scored
  // answer, unless it is empty.
  std::string Sibling(absl::string_view problem,
                      const std::optional<std::string>& shown,
                      const std::string& feedback,
                      const PromptColumns& columns = NoColumns()) const;
  // Returns the feedback on an answer, empty for none. `result` is the content
  // of the answer's box, if it has one. `truncated` means that the answer has
  // the maximum number of tokens and no end; a correct answer gets that
  // feedback, too.
  std::string Feedback(bool correct,
                       const std::optional<std::string>& result,
                       bool truncated,
                       const PromptColumns& columns = NoColumns()) const;
  // Returns the message for an answer alone.
  std::string Probe(absl::string_view shown,
                    const PromptColumns& columns = NoColumns()) const;

  // Returns the fields that stand for columns, of all messages, and of the
  // messages that ask a held-out problem (prompts.none and prompts.system).
  std::set<std::string> Columns() const;
  std::set<std::string> QuestionColumns() const;

  // Returns the largest number of times that a message shows the problem,
  // together with its system message, and an answer.
  size_t most_problems() const;
  size_t most_references() const;
  // Returns an upper bound on the number of columns that a message, its system
  // message and its feedback show together.
  size_t most_columns() const;
  // Returns the number of times that the self-teacher's message shows a
  // sibling, and that its feedback quotes the result of an answer.
  size_t siblings() const;
  size_t feedbacks() const;
  // Returns the number of times that the self-teacher's message shows feedback.
  size_t feedback_places() const;

 private:
  std::vector<const PromptTemplate*> All() const;
  // Returns a message that shows a problem with an answer.
  std::string Fill(const PromptTemplate& prompt,
                   absl::string_view problem,
                   absl::string_view shown,
                   const PromptColumns& columns) const;

  PromptTemplate system_;
  bool has_system_;
  PromptTemplate none_;
  PromptTemplate privileged_;
  PromptTemplate demonstration_;
  PromptTemplate probe_;
  PromptTemplate sibling_;
  PromptTemplate sibling_solution_;
  PromptTemplate sibling_feedback_;
  PromptTemplate feedback_wrong_;
  PromptTemplate feedback_unboxed_;
  PromptTemplate feedback_truncated_;
};

// Returns the largest number of bytes of feedback by a grader of the user's own
// (grader.max_feedback_bytes) that the self-teacher's message may contain.
int64_t MostFeedbackTold(const Config& config);

// Returns the largest number of answers that the self-teacher's message may
// contain: its sibling is one, and the built-in grader's feedback may quote a
// whole answer; 0 if the self-teacher is told nothing, as in a group of
// one without feedback.
int64_t MostAnswersTold(const Config& config);

}  // namespace dapd
