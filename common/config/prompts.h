// Prompts: the user messages of all views, from the section `prompts`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/prompt_template.h"

namespace dapd {

// Returns one line, with its key, for each problem of the templates: an unknown
// field, a missing field, or a field that this message must not show.
std::vector<std::string> FindPromptProblems(const PromptsSection& section);

class Prompts {
 public:
  // The templates of the release.
  Prompts() : Prompts(PromptsSection()) {}
  // The templates of `section`, in which FindPromptProblems found no problem
  // (LoadConfig has checked them).
  explicit Prompts(const PromptsSection& section);

  // Returns the message for a problem alone, which the sampler gets.
  std::string None(const std::string& problem) const;
  // Returns the messages that show a problem with an answer: as privileged
  // context, and as a demonstration of SDFT.
  std::string Privileged(const std::string& problem,
                         const std::string& shown) const;
  std::string Demonstration(const std::string& problem,
                            const std::string& shown) const;
  // Returns the message of SDPO's self-teacher: the problem; `shown`, another
  // answer that is correct, if there is one; and `feedback` on the scored
  // answer, unless it is empty.
  std::string Sibling(const std::string& problem,
                      const std::optional<std::string>& shown,
                      const std::string& feedback) const;
  // Returns the feedback on an answer, empty for none. `result` is the content
  // of the answer's box, if it has one. `truncated` means that the answer has
  // the maximum number of tokens and no end; a correct answer gets that
  // feedback, too.
  std::string Feedback(bool correct,
                       const std::optional<std::string>& result,
                       bool truncated) const;
  // Returns the message for an answer alone.
  std::string Probe(const std::string& shown) const;

  // Returns the largest number of times that a message shows the problem, and
  // an answer.
  size_t most_problems() const;
  size_t most_references() const;
  // Returns the number of times that the self-teacher's message shows a
  // sibling, and that its feedback quotes the result of an answer.
  size_t siblings() const;
  size_t feedbacks() const;
  // Returns the number of times that the self-teacher's message shows feedback.
  size_t feedback_places() const;

 private:
  std::string Fill(const PromptTemplate& prompt,
                   const std::string& problem,
                   const std::string& shown) const;

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
