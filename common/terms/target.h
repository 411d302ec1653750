// Describes a target, the distribution over the vocabulary with which a student
// is compared at every scored token. It is made of one or more teacher passes.
// docs/objective.md says how to add one.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "common/terms/divergence.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"

namespace dapd {

// Stands in TeacherPass::teacher for the teacher that the sample's row names
// (data.teacher_column): one of `teachers`, or the student's own base.
inline constexpr char kRowTeacher[] = "row";

// Describes a forward pass that a teacher must compute for a sample.
struct TeacherPass {
  WeightSet weights = WeightSet::kBase;
  ViewName view = ViewName::kNoneRollout;
  // The name of a further teacher (`teachers` in the configuration), or
  // kRowTeacher; `weights` is kBase then. Empty: the student's own model.
  std::string teacher;
  auto operator<=>(const TeacherPass&) const = default;
};

// Returns the pass that reads `view` with `weights`: the name of a set of
// weights, of a further teacher, or kRowTeacher. Any text that is not the name
// of a set of weights is taken for a teacher's name.
TeacherPass PassWith(const std::string& weights, ViewName view);

// Returns the text that PassWith reads: "snapshot", "big", "row".
std::string WeightsText(const TeacherPass& pass);

struct WeightedPass {
  TeacherPass pass;
  double factor = 1.0;
  bool operator==(const WeightedPass&) const = default;
};

// Describes a distribution that other passes shift:
//
//   log q = log softmax(log q_anchor + strength * clip(centre(delta)))
//   delta = sum_i factor_i log q_i
//
// centre subtracts the plain mean over the vocabulary, and clip(x) = soft_clip
// tanh(x / soft_clip). Purified OPSD (Shen et al., arXiv 2607.02234, 3.2) has
// the anchor None, delta = log Cross - log Probe, recentred, and soft_clip 10.
struct Mixture {
  static constexpr size_t kMaxParts = 4;

  TeacherPass anchor;
  std::vector<WeightedPass> delta;  // 1 to kMaxParts
  bool recentre = false;
  double soft_clip = kNoClip;
  double strength = 1.0;

  bool operator==(const Mixture&) const = default;
};

// Chooses one of two passes at every token, by how far they agree about the
// scored token (DOPD, Yu et al., arXiv 2606.30626). q_1 and q_2 are the token's
// probabilities under the two passes, and A = |log q_1 - log q_2|. The means
// are over the micro-batch's counted tokens, each without its largest values (a
// share of `trim`):
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
    double factor = 1.0;  // factor of the token's loss
    bool operator==(const Choice&) const = default;
  };
  std::array<Choice, kNumRegimes> choices;  // indexed by Regime

  bool operator==(const Routed&) const = default;
};

// Stands for the scored token with the whole probability: the forward KL
// divergence to it is the cross entropy of supervised fine-tuning. Needs no
// teacher.
struct OneHot {
  bool operator==(const OneHot&) const = default;
};

using Target = std::variant<TeacherPass, Mixture, Routed, OneHot>;

// Returns the teacher passes of a target, in the order of a HeadTerm
// (head_loss.h); a Mixture's anchor comes first.
std::vector<TeacherPass> PassesOf(const Target& target);

// Returns a text such as "cross_rollout (snapshot)", or "none_rollout (teacher
// big)" for a further teacher, for people.
std::string Describe(const Target& target);

}  // namespace dapd
