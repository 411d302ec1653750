#include "common/objective/common_vocabulary.h"

#include <algorithm>
#include <vector>

namespace dapd {
namespace {

// Returns how many tokens the scores are about.
int64_t TokensOfScores(const LmHead& head, const TeacherScores& scores) {
  return scores.logits.defined() ? scores.logits.size(1)
                                 : HeadOfScores(head, scores).weight.size(0);
}

void CheckScores(const LmHead& head,
                 const TeacherScores& scores,
                 int64_t vocabulary) {
  const int64_t tokens = TokensOfScores(head, scores);
  if (scores.top_ids.defined()) {
    TORCH_CHECK(tokens == vocabulary,
                "[head_loss] a top_k payload is normalised over its model's ",
                tokens,
                " tokens and cannot be cut to the ",
                vocabulary,
                " tokens that all models share; let this teacher send hidden "
                "states (teacher.payload: hidden_states)");
    return;
  }
  TORCH_CHECK(tokens >= vocabulary,
              "[head_loss] the loss is over ",
              vocabulary,
              " tokens, but a teacher's ",
              scores.logits.defined() ? "logits have " : "head has ",
              tokens);
  if (!scores.hidden.defined()) return;
  const int64_t width = HeadOfScores(head, scores).weight.size(1);
  TORCH_CHECK(scores.hidden.size(1) == width,
              "[head_loss] a teacher's hidden states have ",
              scores.hidden.size(1),
              " numbers per token, but its head takes ",
              width);
}

}  // namespace

const LmHead& HeadOfScores(const LmHead& head, const TeacherScores& scores) {
  return scores.head == nullptr ? head : *scores.head;
}

int64_t CommonVocabulary(const LmHead& head,
                         std::span<const TeacherScores* const> scores,
                         int64_t given) {
  const int64_t rows = head.weight.size(0);
  TORCH_CHECK(given <= rows,
              "[head_loss] the loss is over ",
              given,
              " tokens, but the head of the call has ",
              rows,
              " rows");
  int64_t vocabulary = given > 0 ? given : rows;
  for (const TeacherScores* each : scores) {
    if (each == nullptr || given > 0) continue;
    vocabulary = std::min(vocabulary, TokensOfScores(head, *each));
  }
  for (const TeacherScores* each : scores) {
    if (each != nullptr) CheckScores(head, *each, vocabulary);
  }
  return vocabulary;
}

int64_t CommonVocabulary(const LmHead& head,
                         std::span<const HeadTerm> terms,
                         int64_t given) {
  std::vector<const TeacherScores*> scores;
  for (const HeadTerm& term : terms) {
    scores.insert(scores.end(), term.passes.begin(), term.passes.end());
  }
  return CommonVocabulary(head, scores, given);
}

LmHead FirstRows(const LmHead& head, int64_t rows) {
  if (head.weight.size(0) == rows) return head;
  return {head.weight.narrow(0, 0, rows), head.softcap};
}

}  // namespace dapd
