// Decides over which tokens the distributions of a head loss are taken when its
// models have vocabularies of several sizes: the first V_c tokens, which every
// head has a row for. A head of more rows is cut, which computes exactly the
// distribution of its model given that the token is one of the V_c.
#pragma once

#include <cstdint>
#include <span>

#include "common/objective/head_loss.h"

namespace dapd {

// Returns the head that made the scores; `head` is the head of the call.
const LmHead& HeadOfScores(const LmHead& head, const TeacherScores& scores);

// Returns V_c: `given` or, if that is 0, the smallest number of rows of `head`
// and of the scores' heads, and of columns of given logits. Scores may be null.
// Throws c10::Error if the scores do not fit: `given` exceeds a head or given
// logits, hidden states have another width than their head, or a top_k payload
// is of a vocabulary of another size, since without the rest of its logits it
// cannot be normalised over the V_c tokens.
int64_t CommonVocabulary(const LmHead& head,
                         std::span<const TeacherScores* const> scores,
                         int64_t given);

// Does the same for all scores of a call's terms.
int64_t CommonVocabulary(const LmHead& head,
                         std::span<const HeadTerm> terms,
                         int64_t given);

// Returns the first `rows` rows of a head, without a copy.
LmHead FirstRows(const LmHead& head, int64_t rows);

}  // namespace dapd
