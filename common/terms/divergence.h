// Describes how a term compares a student's distribution p with its target q at
// a scored token, as plain data that the configuration, the kernels for CPU and
// GPU, and the reference implementation share. docs/objective.md has the
// formulas and says how to add a divergence.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace dapd {

enum class DivergenceKind {
  kForwardKl,      // sum_v q (log q - log p)
  kReverseKl,      // sum_v p (log p - log q)
  kJensenShannon,  // sum_v beta q log(q / m) + (1 - beta) p log(p / m)
};
constexpr auto NameTable(DivergenceKind) {
  return std::array{"forward_kl", "reverse_kl", "jensen_shannon"};
}

struct Divergence {
  DivergenceKind kind = DivergenceKind::kForwardKl;
  // Weight of the target in m = beta q + (1 - beta) p; above 0 and below 1.
  double beta = 0.5;
  // c: the largest contribution of a vocabulary entry; infinity means no clip.
  double clip = 0.05;

  bool operator==(const Divergence&) const = default;
};

// Names the entries of the vocabulary over which the divergence is summed.
enum class SupportKind {
  kFull,
  kStudentTopK,  // the student's k most probable tokens
  kTeacherTopK,  // the target's k most probable tokens
};
constexpr auto NameTable(SupportKind) {
  return std::array{"full", "student_top_k", "teacher_top_k"};
}

struct Support {
  SupportKind kind = SupportKind::kFull;
  int64_t k = 100;
  // Whether the rest of the vocabulary is one more entry. Without it, p and q
  // are normalised over the k tokens.
  bool tail = true;

  bool operator==(const Support&) const = default;
};

// Decides how the values of a micro-batch's tokens become the value of a term.
enum class Reduction {
  kMicroToken,         // sum over all tokens / number of tokens
  kSeqMean,            // mean over answers of the token mean of each answer
  kSeqMeanKeepMasked,  // as kSeqMean, but an answer without a scored token
                       // counts as 0
};
constexpr auto NameTable(Reduction) {
  return std::array{"micro_token", "seq_mean", "seq_mean_keep_masked"};
}

inline constexpr double kNoClip = std::numeric_limits<double>::infinity();

}  // namespace dapd
