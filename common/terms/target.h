// What a student is compared with: a distribution over the vocabulary for every
// scored token, made of one or more teacher passes. docs/objective.md says how
// to add one.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <variant>
#include <vector>

#include "common/terms/divergence.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"

namespace dapd {

// One forward that a teacher has to do for a sample.
struct TeacherPass {
  WeightSet weights = WeightSet::kBase;
  ViewName view = ViewName::kNoneRollout;
  auto operator<=>(const TeacherPass&) const = default;
};

struct WeightedPass {
  TeacherPass pass;
  double factor = 1.0;
  bool operator==(const WeightedPass&) const = default;
};

// A distribution that is moved by what other passes say:
//
//   log q = log softmax(log q_anchor + strength * clip(centre(delta)))
//   delta = sum_i factor_i log q_i
//
// centre subtracts the plain mean over the vocabulary, clip(x) = soft_clip
// tanh(x / soft_clip). Purified OPSD (Shen et al., arXiv 2607.02234, 3.2) is
// anchor None, delta = log Cross - log Probe, recentred, soft_clip 10.
struct Mixture {
  static constexpr size_t kMaxParts = 4;

  TeacherPass anchor;
  std::vector<WeightedPass> delta;  // 1 to kMaxParts
  bool recentre = false;
  double soft_clip = kNoClip;
  double strength = 1.0;

  bool operator==(const Mixture&) const = default;
};

// Token by token one of two passes, by how far they agree about the scored
// token (DOPD, Yu et al., arXiv 2606.30626). With q_1 and q_2 the token's
// probabilities under both, A = |log q_1 - log q_2|, and averages over the
// micro-batch's counted tokens, each without its largest values (`trim` of
// them):
enum class Regime {
  kAgreeLikely,    // A < mean A and q_1 + q_2 >= mean q_1 + mean q_2
  kAgreeUnlikely,  // A < mean A otherwise
  kFirstSurer,     // A >= mean A and q_1 >= q_2
  kSecondSurer,    // A >= mean A otherwise
};
inline constexpr size_t kNumRegimes = 4;
constexpr auto NameTable(Regime) {
  return std::array{
      "agree_likely", "agree_unlikely", "first_surer", "second_surer"};
}

struct Routed {
  TeacherPass first;
  TeacherPass second;
  double trim = 0.05;
  struct Choice {
    bool takes_second = false;
    double factor = 1.0;  // of the token's loss
    bool operator==(const Choice&) const = default;
  };
  std::array<Choice, kNumRegimes> choices;  // by Regime

  bool operator==(const Routed&) const = default;
};

// The scored token itself, with all of the probability: the forward KL
// divergence to it is the cross entropy of supervised fine-tuning. Needs no
// teacher.
struct OneHot {
  bool operator==(const OneHot&) const = default;
};

using Target = std::variant<TeacherPass, Mixture, Routed, OneHot>;

// The teacher passes that it is made of, in the order in which a HeadTerm
// (head_loss.h) has them: of a Mixture the anchor first.
std::vector<TeacherPass> PassesOf(const Target& target);

// "cross_rollout (snapshot)", for people.
std::string Describe(const Target& target);

}  // namespace dapd
