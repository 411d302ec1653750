#include "common/data/claim_openings.h"

#include "absl/strings/str_cat.h"

namespace dapd {

const std::vector<ClaimOpening>& ClaimOpenings() {
  static const auto& openings = *new std::vector<ClaimOpening>{
      {"memory", "I recall that the answer is"},
      {"memory", "I remember that the answer is"},
      {"memory", "From memory, the answer is"},
      {"reference", "The reference solution says"},
      {"reference", "According to the answer key, the answer is"},
      {"official solution", "The official answer is"},
      {"outside source", "I looked this up online and the answer is"},
      {"outside source", "According to the textbook, the answer is"}};
  return openings;
}

const std::vector<std::string>& FailureOpenings() {
  static const auto& openings = *new std::vector<std::string>{
      "I am stuck.", "I give up.", "I cannot derive it."};
  return openings;
}

std::vector<std::string> ClaimTexts() {
  std::vector<std::string> texts;
  for (const ClaimOpening& claim : ClaimOpenings()) {
    texts.push_back(claim.text);
    for (const std::string& failure : FailureOpenings()) {
      texts.push_back(absl::StrCat(failure, " ", claim.text));
    }
  }
  return texts;
}

}  // namespace dapd
