#include "services/trainer/claim_meter.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/data/claim_openings.h"
#include "services/trainer/record/shown_answer.h"

namespace dapd {
namespace {

absl::StatusOr<ContinuationTree> TreeOfOpenings(const Tokenizer& tokenizer,
                                                absl::string_view before) {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& text : ClaimTexts()) {
    ASSIGN_OR_RETURN(sequences.emplace_back(),
                     tokenizer.Encode(absl::StrCat(before, text)));
  }
  return ContinuationTree::Make(std::move(sequences));
}

}  // namespace

absl::StatusOr<ClaimMeter> ClaimMeter::Make(const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(ContinuationTree bare, TreeOfOpenings(tokenizer, ""));
  ASSIGN_OR_RETURN(ContinuationTree spaced, TreeOfOpenings(tokenizer, " "));
  return ClaimMeter(tokenizer, std::move(bare), std::move(spaced));
}

ClaimMeter::ClaimMeter(const Tokenizer& tokenizer,
                       ContinuationTree bare,
                       ContinuationTree spaced)
    : tokenizer_(tokenizer),
      bare_(std::move(bare)),
      spaced_(std::move(spaced)) {}

std::vector<ClaimPlace> ClaimMeter::ChosenPlaces(
    std::span<const int32_t> answer) const {
  const std::vector<ClaimPlace> all = ClaimPlaces(tokenizer_, answer);
  std::vector<ClaimPlace> chosen;
  for (const size_t index : SpreadPlaces(all.size(), kMaxClaimPlaces)) {
    chosen.push_back(all[index]);
  }
  return chosen;
}

std::vector<int64_t> ClaimMeter::PlacesOf(
    std::span<const int32_t> answer) const {
  std::vector<int64_t> tokens;
  for (const ClaimPlace& place : ChosenPlaces(answer)) {
    tokens.push_back(place.tokens);
  }
  return tokens;
}

double ClaimMeter::Measure(const ModelWeights& weights,
                           const Adapter& live,
                           std::span<const int32_t> prompt,
                           std::span<const int32_t> answer) const {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), answer.begin(), answer.end());
  std::vector<ContinuationPlace> places;
  for (const ClaimPlace& place : ChosenPlaces(answer)) {
    places.push_back(
        {.tokens = static_cast<int64_t>(prompt.size()) + place.tokens,
         .tree = place.needs_space ? &spaced_ : &bare_});
  }
  const std::vector<double> probabilities =
      ContinuationProbabilities(weights, &live, ids, places);
  return std::reduce(probabilities.begin(), probabilities.end()) /
         static_cast<double>(probabilities.size());
}

int64_t ClaimMeter::longest() const {
  return std::max(bare_.longest(), spaced_.longest());
}

}  // namespace dapd
