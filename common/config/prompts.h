// The user messages of all views, as the section `prompts` has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/prompt_template.h"

namespace dapd {

// What is wrong with the templates, one line each with its key: an unknown
// field, one that is missing, one that must not be seen there.
std::vector<std::string> FindPromptProblems(const PromptsSection& section);

class Prompts {
 public:
  // The released ones.
  Prompts() : Prompts(PromptsSection()) {}
  // Of templates without problems (LoadConfig has looked).
  explicit Prompts(const PromptsSection& section);

  // Of a problem alone: what the sampler is asked.
  std::string None(const std::string& problem) const;
  // Of a problem with an answer shown: as privileged context, or as SDFT's
  // demonstration.
  std::string Privileged(const std::string& problem,
                         const std::string& shown) const;
  std::string Demonstration(const std::string& problem,
                            const std::string& shown) const;
  // SDPO's self-teacher reads beside the problem `shown`, another answer that
  // is correct, if there is one, and `feedback` on the scored answer, unless
  // that is empty.
  std::string Sibling(const std::string& problem,
                      const std::optional<std::string>& shown,
                      const std::string& feedback) const;
  // The feedback on an answer; empty: there is none. `result`: the content of
  // its box, if it has one. `truncated`: it has as many tokens as an answer may
  // have, and no end; a correct answer is told so, too.
  std::string Feedback(bool correct,
                       const std::optional<std::string>& result,
                       bool truncated) const;
  // Of an answer alone.
  std::string Probe(const std::string& shown) const;

  // How often a message shows problem and answer, at most.
  size_t most_problems() const;
  size_t most_references() const;
  // How often the self-teacher's message shows a sibling, and how often its
  // feedback quotes an answer's result.
  size_t siblings() const;
  size_t feedbacks() const;

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

// How many answers the self-teacher's message may hold: its sibling is one, and
// feedback may quote all of one. 0: there is nothing to tell, as in a group of
// one without feedback.
int64_t MostAnswersTold(const Config& config);

}  // namespace dapd
