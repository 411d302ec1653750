#include "common/objective/clipped_kl.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The definition, entry by entry.
double SlowLoss(const at::Tensor& log_p, const at::Tensor& log_q, double clip) {
  double loss = 0.0;
  for (int64_t t = 0; t < log_p.size(0); ++t) {
    for (int64_t v = 0; v < log_p.size(1); ++v) {
      const double lq = log_q[t][v].item<double>();
      const double lp = log_p[t][v].item<double>();
      loss += std::min(std::exp(lq) * (lq - lp), clip);
    }
  }
  return loss;
}

struct Case {
  std::string name;
  at::Tensor student;  // logits [n, V], double
  at::Tensor teacher;
  double clip;
};

at::Tensor Random(int64_t n, int64_t v, double spread, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({n, v}, at::kDouble) * spread;
}

std::vector<Case> Cases() {
  at::Tensor peaked = Random(3, 9, 1.0, 3);
  peaked.select(1, 2).fill_(30.0);
  at::Tensor underflow = Random(3, 9, 1.0, 5);
  underflow.select(1, 0).fill_(-2000.0);
  return {
      {"usual clip", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), 0.05},
      {"none clipped", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), kInfinity},
      {"all clipped", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), -5.0},
      {"certain teacher", Random(3, 9, 1.0, 4), peaked, 0.05},
      {"teacher underflow", Random(3, 9, 1.0, 6), underflow, 0.05},
      {"student equals teacher",
       Random(3, 9, 1.0, 7),
       Random(3, 9, 1.0, 7),
       0.05},
  };
}

TEST(ClippedForwardKlTest, ValueIsTheSumOfClippedComponents) {
  for (const Case& c : Cases()) {
    const at::Tensor log_p = at::log_softmax(c.student, -1);
    const at::Tensor log_q = at::log_softmax(c.teacher, -1);
    const DivergenceSums sums = ClippedForwardKl(log_p, log_q, c.clip, 1.0, {});
    EXPECT_NEAR(sums.clipped, SlowLoss(log_p, log_q, c.clip), 1e-12) << c.name;
    EXPECT_NEAR(sums.unclipped, SlowLoss(log_p, log_q, kInfinity), 1e-12)
        << c.name;
    EXPECT_EQ(sums.tokens, c.student.size(0));
  }
}

TEST(ClippedForwardKlTest, GradientAgreesWithCentralDifferences) {
  constexpr double kStep = 1e-6;
  for (const Case& c : Cases()) {
    const at::Tensor log_q = at::log_softmax(c.teacher, -1);
    at::Tensor grad = at::zeros_like(c.student);
    ClippedForwardKl(at::log_softmax(c.student, -1), log_q, c.clip, 1.0, grad);
    double worst = 0.0;
    for (int64_t t = 0; t < c.student.size(0); ++t) {
      for (int64_t v = 0; v < c.student.size(1); ++v) {
        at::Tensor up = c.student.clone();
        at::Tensor down = c.student.clone();
        up[t][v] += kStep;
        down[t][v] -= kStep;
        const double difference =
            (SlowLoss(at::log_softmax(up, -1), log_q, c.clip) -
             SlowLoss(at::log_softmax(down, -1), log_q, c.clip)) /
            (2 * kStep);
        worst =
            std::max(worst, std::abs(difference - grad[t][v].item<double>()));
      }
    }
    RecordProperty(c.name, std::to_string(worst));
    EXPECT_LT(worst, 1e-8) << c.name;
    EXPECT_LT(grad.sum(-1).abs().max().item<double>(), 1e-12)
        << c.name << ": each row's gradient sums to zero";
  }
}

TEST(ClippedForwardKlTest, AComponentExactlyAtTheClipPassesGradient) {
  const at::Tensor log_p = at::log_softmax(Random(1, 6, 2.0, 11), -1);
  const at::Tensor log_q = at::log_softmax(Random(1, 6, 2.0, 12), -1);
  const at::Tensor components = log_q.exp() * (log_q - log_p);
  const double largest = components.max().item<double>();
  at::Tensor at_tie = at::zeros_like(log_p);
  at::Tensor unclipped = at::zeros_like(log_p);
  at::Tensor below = at::zeros_like(log_p);
  const DivergenceSums sums =
      ClippedForwardKl(log_p, log_q, largest, 1.0, at_tie);
  ClippedForwardKl(log_p, log_q, kInfinity, 1.0, unclipped);
  ClippedForwardKl(
      log_p, log_q, std::nextafter(largest, -kInfinity), 1.0, below);
  EXPECT_EQ(sums.clipped_tokens, 0);
  EXPECT_TRUE(at::equal(at_tie, unclipped));
  EXPECT_FALSE(at::allclose(at_tie, below));
}

TEST(ClippedForwardKlTest, AllClippedRowsHaveNoGradient) {
  at::Tensor grad = at::zeros({2, 5}, at::kDouble);
  const DivergenceSums sums =
      ClippedForwardKl(at::log_softmax(Random(2, 5, 1.0, 1), -1),
                       at::log_softmax(Random(2, 5, 1.0, 2), -1),
                       -5.0,
                       1.0,
                       grad);
  EXPECT_EQ(grad.abs().max().item<double>(), 0.0);
  EXPECT_EQ(sums.clipped_tokens, 2);
  EXPECT_DOUBLE_EQ(sums.clipped, -5.0 * 10);
}

TEST(ClippedForwardKlTest, FloatUnderflowOfTheTeacherStaysFinite) {
  at::Tensor teacher = at::zeros({1, 4});
  teacher[0][0] = -1000.0F;
  at::Tensor student = at::zeros({1, 4});
  student[0][1] = -1000.0F;
  at::Tensor grad = at::zeros({1, 4});
  const DivergenceSums sums = ClippedForwardKl(at::log_softmax(student, -1),
                                               at::log_softmax(teacher, -1),
                                               0.05,
                                               1.0,
                                               grad);
  EXPECT_TRUE(std::isfinite(sums.clipped));
  EXPECT_TRUE(std::isfinite(sums.unclipped));
  EXPECT_TRUE(grad.isfinite().all().item<bool>());
}

TEST(ClippedForwardKlTopKTest, TheWholeVocabularyGivesTheFullValue) {
  for (const Case& c : Cases()) {
    const at::Tensor log_p = at::log_softmax(c.student, -1);
    const at::Tensor log_q = at::log_softmax(c.teacher, -1);
    const auto [top, ids] = log_q.topk(log_q.size(1), -1);
    at::Tensor full = at::zeros_like(log_p);
    at::Tensor sparse = at::zeros_like(log_p);
    const DivergenceSums a = ClippedForwardKl(log_p, log_q, c.clip, 0.7, full);
    const DivergenceSums b =
        ClippedForwardKlTopK(log_p, ids, top, c.clip, 0.7, sparse);
    EXPECT_NEAR(a.clipped, b.clipped, 1e-12) << c.name;
    EXPECT_NEAR(a.unclipped, b.unclipped, 1e-12) << c.name;
    EXPECT_EQ(a.clipped_tokens, b.clipped_tokens) << c.name;
    EXPECT_LT((full - sparse).abs().max().item<double>(), 1e-12) << c.name;
  }
}

TEST(ClippedForwardKlTopKTest, TailGradientAgreesWithCentralDifferences) {
  constexpr double kStep = 1e-6;
  const at::Tensor student = Random(2, 9, 1.5, 21);
  const at::Tensor log_q = at::log_softmax(Random(2, 9, 1.5, 22), -1);
  const auto [top, ids] = log_q.topk(4, -1);
  for (const double clip : {0.05, kInfinity}) {
    const auto loss = [&, &top = top, &ids = ids](const at::Tensor& logits) {
      return ClippedForwardKlTopK(
                 at::log_softmax(logits, -1), ids, top, clip, 1.0, {})
          .clipped;
    };
    at::Tensor grad = at::zeros_like(student);
    ClippedForwardKlTopK(
        at::log_softmax(student, -1), ids, top, clip, 1.0, grad);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t v = 0; v < 9; ++v) {
        at::Tensor up = student.clone();
        at::Tensor down = student.clone();
        up[t][v] += kStep;
        down[t][v] -= kStep;
        EXPECT_NEAR((loss(up) - loss(down)) / (2 * kStep),
                    grad[t][v].item<double>(),
                    1e-8);
      }
    }
  }
}

}  // namespace
}  // namespace dapd
