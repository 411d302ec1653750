#include "common/objective/head_loss.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr double kTemperature = 1.1;

struct Inputs {
  at::Tensor head = torch::randn({50, 8});
  at::Tensor student = torch::randn({11, 8});
  TeacherScores first{torch::randn({11, 8}), {}, {}, {}};
  TeacherScores second{torch::randn({11, 8}), {}, {}, {}};
  std::vector<HeadTerm> terms() const {
    return {{&first, 0.05, 0.3}, {&second, 0.02, 0.1}};
  }
};

class HeadLossTest : public testing::Test {
 protected:
  HeadLossTest() { torch::manual_seed(1); }
};

// The same loss with whole tensors and LibTorch's autograd.
at::Tensor SlowLoss(const Inputs& in, const at::Tensor& student) {
  at::Tensor loss = torch::zeros({}, at::kDouble);
  const at::Tensor log_p =
      at::log_softmax(at::linear(student, in.head) / kTemperature, -1);
  for (const HeadTerm& term : in.terms()) {
    const at::Tensor log_q = at::log_softmax(
        at::linear(term.teacher->hidden, in.head) / kTemperature, -1);
    loss = loss + term.token_weight * (log_q.exp() * (log_q - log_p))
                                          .clamp_max(term.clip)
                                          .sum()
                                          .to(at::kDouble);
  }
  return loss;
}

TEST_F(HeadLossTest, GradientAgreesWithAutogradOverWholeTensors) {
  const Inputs in;
  at::Tensor leaf = in.student.clone().requires_grad_(true);
  SlowLoss(in, leaf).backward();
  const HeadLoss loss =
      ComputeHeadLoss(in.head, in.student, in.terms(), {kTemperature, 4}, true);
  const double error =
      ((loss.grad_hidden - leaf.grad()).norm() / leaf.grad().norm())
          .item<double>();
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LT(error, 1e-5);
  const double value = 0.3 * loss.sums[0].clipped + 0.1 * loss.sums[1].clipped;
  EXPECT_NEAR(value, SlowLoss(in, in.student).item<double>(), 1e-5);
}

TEST_F(HeadLossTest, TheChunkSizeDoesNotMatter) {
  const Inputs in;
  const HeadLoss whole = ComputeHeadLoss(
      in.head, in.student, in.terms(), {kTemperature, 100}, true);
  for (const int64_t chunk : {1, 3, 11}) {
    const HeadLoss parts = ComputeHeadLoss(
        in.head, in.student, in.terms(), {kTemperature, chunk}, true);
    EXPECT_TRUE(at::allclose(parts.grad_hidden, whole.grad_hidden, 1e-5, 1e-7));
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_NEAR(parts.sums[k].clipped, whole.sums[k].clipped, 1e-5);
      EXPECT_EQ(parts.sums[k].clipped_tokens, whole.sums[k].clipped_tokens);
      EXPECT_EQ(parts.sums[k].tokens, 11);
    }
  }
}

TEST_F(HeadLossTest, HiddenStatesLogitsAndTopVPayloadsGiveTheSameLoss) {
  Inputs in;
  const at::Tensor logits = at::linear(in.first.hidden, in.head);
  const auto [top, ids] =
      at::log_softmax(logits / kTemperature, -1).topk(50, -1);
  const TeacherScores as_logits{{}, logits, {}, {}};
  const TeacherScores as_top{{}, {}, ids, top};
  const auto run = [&](const TeacherScores& scores) {
    const std::vector<HeadTerm> terms = {{&scores, 0.05, 1.0}};
    return ComputeHeadLoss(in.head, in.student, terms, {kTemperature, 4}, true);
  };
  const HeadLoss hidden = run(in.first);
  for (const TeacherScores* scores : {&as_logits, &as_top}) {
    const HeadLoss other = run(*scores);
    EXPECT_NEAR(other.sums[0].clipped, hidden.sums[0].clipped, 1e-5);
    EXPECT_TRUE(
        at::allclose(other.grad_hidden, hidden.grad_hidden, 1e-4, 1e-6));
  }
}

TEST_F(HeadLossTest, WithoutGradientOnlyTheSumsAreComputed) {
  const Inputs in;
  const HeadLoss loss = ComputeHeadLoss(
      in.head, in.student, in.terms(), {kTemperature, 4}, false);
  EXPECT_FALSE(loss.grad_hidden.defined());
  EXPECT_GT(loss.sums[0].unclipped, 0.0);
}

}  // namespace
}  // namespace dapd
