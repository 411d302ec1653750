// ClaimMeter measures how probable it is to a policy that it claims to know an
// answer, from memory or from a reference, in place of deriving it: without
// sampling, without a grader, and long before claims are frequent in samples.
//
//   openings   the texts of ClaimTexts (common/data/claim_openings.h): claims,
//              and claims behind an admitted failure
//   places     the beginning of a sampled answer and the boundaries of its
//              tokens at which a sentence begins (common/data/claim_places.h);
//              of more than kMaxClaimPlaces, so many, spread evenly
//   a place's probability is the sum over the openings of the product of their
//   tokens' probabilities behind prompt and answer so far, at temperature 1
//   over the whole vocabulary. No opening begins another one, so that at most
//   one can follow. It is a lower bound for the probability of these texts,
//   since each counts in the tokenizer's own tokens only, behind a space where
//   the answer before it does not end in white space.
//   an answer's figure is the mean over its places
//
// The same answer is measured behind two prompts: None, the problem alone, and
// Cross, the prompt that shows the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/claim_places.h"
#include "common/model/continuations.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

inline constexpr size_t kMaxClaimPlaces = 16;

// Not thread-safe: owned by the compute thread.
class ClaimMeter {
 public:
  // Returns INVALID_ARGUMENT if the tokenizer's tokens of an opening begin
  // another opening's. `tokenizer` must outlive the meter.
  static absl::StatusOr<ClaimMeter> Make(const Tokenizer& tokenizer);

  // Returns the numbers of the answer's tokens before each place. `answer` has
  // no end token.
  std::vector<int64_t> PlacesOf(std::span<const int32_t> answer) const;

  // Returns the figure of an answer behind a prompt of at least one token. The
  // caller must know that the model's context takes prompt, answer and the
  // longest() opening.
  double Measure(const ModelWeights& weights,
                 const Adapter& live,
                 std::span<const int32_t> prompt,
                 std::span<const int32_t> answer) const;

  // Returns the number of tokens of the longest opening.
  int64_t longest() const;

 private:
  ClaimMeter(const Tokenizer& tokenizer,
             ContinuationTree bare,
             ContinuationTree spaced);

  std::vector<ClaimPlace> ChosenPlaces(std::span<const int32_t> answer) const;

  const Tokenizer& tokenizer_;
  const ContinuationTree bare_;
  const ContinuationTree spaced_;  // with a space before each opening
};

}  // namespace dapd
