#include "common/objective/divergence_by_tensors.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns min(component, clip) summed over two distributions, by the
// definition. A log-probability below any double's logarithm counts as that
// logarithm.
double SlowSum(const std::vector<double>& log_p,
               const std::vector<double>& log_q,
               const Divergence& divergence) {
  double sum = 0.0;
  for (size_t v = 0; v < log_p.size(); ++v) {
    const double p = std::exp(log_p[v]);
    const double q = std::exp(log_q[v]);
    double component = 0.0;
    switch (divergence.kind) {
      case DivergenceKind::kForwardKl:
        component = q * (log_q[v] - log_p[v]);
        break;
      case DivergenceKind::kReverseKl:
        component = p * (log_p[v] - log_q[v]);
        break;
      case DivergenceKind::kJensenShannon: {
        const double m = divergence.beta * q + (1.0 - divergence.beta) * p;
        if (q > 0.0) component += divergence.beta * q * std::log(q / m);
        if (p > 0.0) component += (1.0 - divergence.beta) * p * std::log(p / m);
        break;
      }
    }
    sum += std::min(component, divergence.clip);
  }
  return sum;
}

// Returns the entries of a row over which the divergence is summed; all entries
// if `ids` is empty.
std::vector<double> EntriesOf(const at::Tensor& logprobs,
                              const std::vector<int64_t>& ids,
                              bool tail) {
  std::vector<double> entries;
  if (ids.empty()) {
    for (int64_t v = 0; v < logprobs.size(0); ++v) {
      entries.push_back(logprobs[v].item<double>());
    }
    return entries;
  }
  double sum = 0.0;
  for (const int64_t id : ids) {
    entries.push_back(logprobs[id].item<double>());
    sum += std::exp(entries.back());
  }
  if (tail) {
    // The rest counts as at least 1e-7.
    entries.push_back(std::log(-std::expm1(std::min(std::log(sum), -1e-7))));
  } else {
    for (double& entry : entries) entry -= std::log(sum);
  }
  return entries;
}

struct Case {
  std::string name;
  at::Tensor student;  // logits [n, V], double
  at::Tensor teacher;
  Divergence divergence;
  Support support;
};

at::Tensor Random(int64_t n, int64_t v, double spread, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({n, v}, generator, at::kDouble) * spread;
}

std::vector<Case> Cases() {
  at::Tensor peaked = Random(3, 9, 1.0, 3);
  peaked.select(1, 2).fill_(30.0);
  at::Tensor underflow = Random(3, 9, 1.0, 5);
  underflow.select(1, 0).fill_(-2000.0);
  struct Pair {
    const char* name;
    at::Tensor student, teacher;
    double clip;
  };
  const std::vector<Pair> pairs = {
      {"usual clip", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), 0.05},
      {"none clipped", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), kInfinity},
      {"all clipped", Random(4, 9, 2.0, 1), Random(4, 9, 2.0, 2), -5.0},
      {"certain teacher", Random(3, 9, 1.0, 4), peaked, 0.05},
      {"certain student", peaked, Random(3, 9, 1.0, 4), 0.05},
      {"teacher underflow", Random(3, 9, 1.0, 6), underflow, 0.05},
      {"student equals teacher",
       Random(3, 9, 1.0, 7),
       Random(3, 9, 1.0, 7),
       0.05},
  };
  std::vector<Case> cases;
  for (int kind = 0; kind < 3; ++kind) {
    for (const Pair& pair : pairs) {
      for (const Support& support :
           {Support(),
            Support{SupportKind::kStudentTopK, 4, true},
            Support{SupportKind::kStudentTopK, 4, false},
            Support{SupportKind::kTeacherTopK, 4, true}}) {
        cases.push_back({std::string(pair.name) + ", divergence " +
                             std::to_string(kind) + ", support " +
                             std::to_string(static_cast<int>(support.kind)) +
                             (support.tail ? "" : " without tail"),
                         pair.student,
                         pair.teacher,
                         {static_cast<DivergenceKind>(kind), 0.3, pair.clip},
                         support});
      }
    }
  }
  return cases;
}

DivergenceSums Compute(const Case& c,
                       const at::Tensor& student,
                       double weight,
                       const at::Tensor& grad) {
  return DivergenceByTensors({.student_logprobs = at::log_softmax(student, -1),
                              .target = {at::log_softmax(c.teacher, -1), {}},
                              .divergence = c.divergence,
                              .support = c.support},
                             weight,
                             grad);
}

// Computes the loss by the definition; `at` gives the support, whatever the
// student is.
double SlowLoss(const Case& c,
                const at::Tensor& student,
                const at::Tensor& at) {
  const at::Tensor log_p = at::log_softmax(student, -1);
  const at::Tensor log_q = at::log_softmax(c.teacher, -1);
  double loss = 0.0;
  for (int64_t t = 0; t < log_p.size(0); ++t) {
    std::vector<int64_t> ids;
    if (c.support.kind != SupportKind::kFull) {
      const at::Tensor& by =
          c.support.kind == SupportKind::kStudentTopK ? at : c.teacher;
      const at::Tensor top = std::get<1>(by[t].topk(c.support.k));
      for (int64_t i = 0; i < top.size(0); ++i) {
        ids.push_back(top[i].item<int64_t>());
      }
    }
    loss += SlowSum(EntriesOf(log_p[t], ids, c.support.tail),
                    EntriesOf(log_q[t], ids, c.support.tail),
                    c.divergence);
  }
  return loss;
}

TEST(DivergenceByTensorsTest, ValueIsTheSumOfClippedComponents) {
  double worst = 0.0;
  for (Case c : Cases()) {
    const DivergenceSums sums = Compute(c, c.student, 1.0, {});
    const double clipped = SlowLoss(c, c.student, c.student);
    c.divergence.clip = kInfinity;
    const double unclipped = SlowLoss(c, c.student, c.student);
    EXPECT_NEAR(sums.clipped, clipped, 1e-10) << c.name;
    EXPECT_NEAR(sums.unclipped, unclipped, 1e-10) << c.name;
    EXPECT_EQ(sums.tokens, c.student.size(0));
    worst = std::max(worst, std::abs(sums.clipped - clipped));
  }
  std::cout << "largest error of " << Cases().size() << " values " << worst
            << "\n";
}

TEST(DivergenceByTensorsTest, GradientAgreesWithCentralDifferences) {
  constexpr double kStep = 1e-6;
  double all = 0.0;
  for (const Case& c : Cases()) {
    at::Tensor grad = at::zeros_like(c.student);
    Compute(c, c.student, 1.0, grad);
    double worst = 0.0;
    for (int64_t t = 0; t < c.student.size(0); ++t) {
      for (int64_t v = 0; v < c.student.size(1); ++v) {
        at::Tensor up = c.student.clone();
        at::Tensor down = c.student.clone();
        up[t][v] += kStep;
        down[t][v] -= kStep;
        const double difference =
            (SlowLoss(c, up, c.student) - SlowLoss(c, down, c.student)) /
            (2 * kStep);
        worst =
            std::max(worst, std::abs(difference - grad[t][v].item<double>()));
      }
    }
    // Near 1 the logarithm of a sum loses digits.
    EXPECT_LT(worst, c.support.kind == SupportKind::kFull ? 1e-8 : 1e-5)
        << c.name;
    EXPECT_LT(grad.sum(-1).abs().max().item<double>(), 1e-12)
        << c.name << ": each row's gradient sums to zero";
    all = std::max(all, worst);
  }
  std::cout << "largest error of " << Cases().size() << " gradients " << all
            << "\n";
}

// Returns the largest component for beta 0.5, rounded as in the tested code.
double LargestComponent(const Case& c) {
  const at::Tensor log_p = at::log_softmax(c.student, -1);
  const at::Tensor log_q = at::log_softmax(c.teacher, -1);
  const at::Tensor p = log_p.exp();
  const at::Tensor q = log_q.exp();
  const at::Tensor log_m =
      at::logaddexp(log_q + std::log(0.5), log_p + std::log(0.5));
  const std::vector<at::Tensor> components = {
      q * (log_q - log_p),
      p * (log_p - log_q),
      0.5 * q * (log_q - log_m) + 0.5 * p * (log_p - log_m)};
  return components[static_cast<size_t>(c.divergence.kind)]
      .max()
      .item<double>();
}

TEST(DivergenceByTensorsTest, AComponentExactlyAtTheClipPassesGradient) {
  for (int kind = 0; kind < 3; ++kind) {
    Case c = {"",
              Random(1, 6, 2.0, 11),
              Random(1, 6, 2.0, 12),
              {static_cast<DivergenceKind>(kind), 0.5, kInfinity},
              {}};
    const auto gradient = [&](double clip) {
      c.divergence.clip = clip;
      at::Tensor grad = at::zeros_like(c.student);
      const DivergenceSums sums = Compute(c, c.student, 1.0, grad);
      return std::pair(grad, sums.clipped_tokens);
    };
    const at::Tensor unclipped = gradient(kInfinity).first;
    const double high = LargestComponent(c);
    const double low = std::nextafter(high, 0.0);
    EXPECT_TRUE(at::equal(gradient(high).first, unclipped)) << kind;
    EXPECT_EQ(gradient(high).second, 0) << kind;
    EXPECT_EQ(gradient(low).second, 1) << kind;
    EXPECT_FALSE(at::allclose(gradient(low).first, unclipped)) << kind;
  }
}

TEST(DivergenceByTensorsTest, AllClippedRowsHaveNoGradient) {
  const Case c = {"",
                  Random(2, 5, 1.0, 1),
                  Random(2, 5, 1.0, 2),
                  {DivergenceKind::kForwardKl, 0.5, -5.0},
                  {}};
  at::Tensor grad = at::zeros({2, 5}, at::kDouble);
  const DivergenceSums sums = Compute(c, c.student, 1.0, grad);
  EXPECT_EQ(grad.abs().max().item<double>(), 0.0);
  EXPECT_EQ(sums.clipped_tokens, 2);
  EXPECT_DOUBLE_EQ(sums.clipped, -5.0 * 10);
}

TEST(DivergenceByTensorsTest, FloatUnderflowOfEitherSideStaysFinite) {
  for (int kind = 0; kind < 3; ++kind) {
    at::Tensor teacher = at::zeros({1, 4});
    teacher[0][0] = -1000.0F;
    at::Tensor student = at::zeros({1, 4});
    student[0][1] = -1000.0F;
    const Case c = {"",
                    student,
                    teacher,
                    {static_cast<DivergenceKind>(kind), 0.5, 0.05},
                    {}};
    at::Tensor grad = at::zeros({1, 4});
    const DivergenceSums sums = Compute(c, student, 1.0, grad);
    EXPECT_TRUE(std::isfinite(sums.clipped)) << kind;
    EXPECT_TRUE(std::isfinite(sums.unclipped)) << kind;
    EXPECT_TRUE(grad.isfinite().all().item<bool>()) << kind;
  }
}

TEST(DivergenceByTensorsTest, ASupportOfAllTokensGivesTheFullValue) {
  for (const Case& c : Cases()) {
    if (c.support.kind == SupportKind::kFull) continue;
    Case whole = c;
    whole.support.k = 100;
    Case full = c;
    full.support = {};
    at::Tensor a = at::zeros_like(c.student);
    at::Tensor b = at::zeros_like(c.student);
    EXPECT_NEAR(Compute(whole, c.student, 0.7, a).clipped,
                Compute(full, c.student, 0.7, b).clipped,
                1e-12)
        << c.name;
    EXPECT_LT((a - b).abs().max().item<double>(), 1e-12) << c.name;
  }
}

TEST(DivergenceByTensorsTest, AFewTokensOfATeacherAreATargetWithATail) {
  const Case c = {"",
                  Random(2, 9, 1.5, 21),
                  Random(2, 9, 1.5, 22),
                  {},
                  {SupportKind::kTeacherTopK, 4, true}};
  const auto [top, ids] = at::log_softmax(c.teacher, -1).topk(4, -1);
  at::Tensor a = at::zeros_like(c.student);
  at::Tensor b = at::zeros_like(c.student);
  const DivergenceSums few =
      DivergenceByTensors({.student_logprobs = at::log_softmax(c.student, -1),
                           .target = {top, ids}},
                          1.0,
                          a);
  EXPECT_DOUBLE_EQ(few.clipped, Compute(c, c.student, 1.0, b).clipped);
  EXPECT_TRUE(at::equal(a, b));
}

// However many tokens a teacher sent, a term's support is the same.
TEST(DivergenceByTensorsTest, ATeachersSupportIsTakenOfTheTokensThatItSent) {
  const at::Tensor student = Random(2, 9, 1.5, 21);
  const at::Tensor teacher = Random(2, 9, 1.5, 22);
  auto [sent, ids] = at::log_softmax(teacher, -1).topk(7, -1);
  // The tokens come in any order.
  sent = sent.flip(1);
  ids = ids.flip(1);
  for (const bool tail : {true, false}) {
    const Case c = {
        "", student, teacher, {}, {SupportKind::kTeacherTopK, 4, tail}};
    at::Tensor a = at::zeros_like(student);
    at::Tensor b = at::zeros_like(student);
    const DivergenceSums few =
        DivergenceByTensors({.student_logprobs = at::log_softmax(student, -1),
                             .target = {sent, ids},
                             .support = c.support},
                            1.0,
                            a);
    EXPECT_DOUBLE_EQ(few.clipped, Compute(c, student, 1.0, b).clipped) << tail;
    EXPECT_TRUE(at::allclose(a, b, 1e-12, 1e-14)) << tail;
  }
}

TEST(DivergenceByTensorsTest, TokenWeightsScaleLossAndGradient) {
  const Case c = {"", Random(3, 9, 1.5, 21), Random(3, 9, 1.5, 22), {}, {}};
  const at::Tensor weights = at::tensor(std::vector<double>{1.0, 0.0, 0.5});
  at::Tensor grad = at::zeros_like(c.student);
  const DivergenceSums sums =
      DivergenceByTensors({.student_logprobs = at::log_softmax(c.student, -1),
                           .target = {at::log_softmax(c.teacher, -1), {}},
                           .token_weights = weights},
                          2.0,
                          grad);
  double expected = 0.0;
  int64_t clipped_tokens = 0;
  for (int64_t t = 0; t < 3; ++t) {
    Case row = c;
    row.student = c.student.narrow(0, t, 1);
    row.teacher = c.teacher.narrow(0, t, 1);
    const double weight = weights[t].item<double>();
    at::Tensor of_row = at::zeros_like(row.student);
    const DivergenceSums sums_of_row =
        Compute(row, row.student, 2.0 * weight, of_row);
    expected += weight * sums_of_row.clipped;
    EXPECT_EQ(sums_of_row.clipped_tokens, 1);
    clipped_tokens += weight == 0.0 ? 0 : 1;
    EXPECT_TRUE(at::allclose(grad[t], of_row[0]));
  }
  EXPECT_NEAR(sums.clipped, expected, 1e-12);
  EXPECT_EQ(sums.clipped_tokens, clipped_tokens);
}

}  // namespace
}  // namespace dapd
