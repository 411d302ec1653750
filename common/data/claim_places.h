// Finds the places in a sampled answer where a claim could begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace dapd {

// A place in front of a token of the answer, or in front of all of them.
struct ClaimPlace {
  int64_t tokens = 0;  // of the answer before it
  // Whether a sentence that begins here begins with a space, since the answer
  // before it does not end in white space.
  bool needs_space = false;

  bool operator==(const ClaimPlace&) const = default;
};

// Returns the beginning of the answer and, in order, every boundary between two
// of its tokens at which a new sentence begins: the text before it ends a
// sentence (sentence_end.h; spaces may follow), and the next token is more than
// white space. `answer` has no end token. An id without a token counts as an
// empty text.
std::vector<ClaimPlace> ClaimPlaces(const Tokenizer& tokenizer,
                                    std::span<const int32_t> answer);

}  // namespace dapd
