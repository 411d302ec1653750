#include "common/objective/head_loss.h"

#include <cmath>
#include <iostream>

#include "gtest/gtest.h"

#include "common/model/weights/placement.h"

namespace dapd {
namespace {

constexpr double kTemperature = 1.1;
constexpr int64_t kVocabulary = 50;
constexpr int64_t kTokens = 11;
constexpr int64_t kHidden = 8;

// Bytes for chunks of at most `tokens` tokens, of `sources` sources.
HeadLossOptions InChunks(int64_t tokens, int64_t sources = 5) {
  return {.temperature = kTemperature,
          .chunk_bytes = tokens * sources * kVocabulary * 4};
}

// Two students, three teachers, four terms: teacher 1 serves both students.
struct Inputs {
  at::Tensor head = at::randn({kVocabulary, kHidden});
  std::vector<at::Tensor> students = {at::randn({kTokens, kHidden}),
                                      at::randn({kTokens, kHidden})};
  std::vector<TeacherScores> teachers = {
      {at::randn({kTokens, kHidden}), {}, {}, {}},
      {at::randn({kTokens, kHidden}), {}, {}, {}},
      {at::randn({kTokens, kHidden}), {}, {}, {}}};

  std::vector<HeadTerm> terms() const {
    return {{&teachers[0], 0.05, 0.3, 0},
            {&teachers[1], 0.02, 0.1, 1},
            {&teachers[2], 0.05, 0.7, 1},
            {&teachers[1], 0.05, 0.2, 0}};
  }

  HeadLoss Run(const HeadLossOptions& options,
               bool with_gradient = true) const {
    return ComputeHeadLoss(head, students, terms(), options, with_gradient);
  }

  Inputs As(at::TensorOptions options) const {
    Inputs other = *this;
    other.head = head.to(options);
    for (at::Tensor& student : other.students) student = student.to(options);
    for (TeacherScores& teacher : other.teachers) {
      teacher.hidden = teacher.hidden.to(options);
    }
    return other;
  }
};

class HeadLossTest : public testing::Test {
 protected:
  HeadLossTest() { at::manual_seed(1); }
};

double RelativeError(const at::Tensor& ours, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble);
  return ((ours.cpu().to(at::kDouble) - wide).norm() / wide.norm())
      .item<double>();
}

// The same loss with whole tensors of doubles and LibTorch's autograd.
struct Slow {
  std::vector<double> values;  // one a term
  std::vector<at::Tensor> gradients;

  explicit Slow(const Inputs& in) {
    const Inputs wide = in.As(at::kDouble);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& student : wide.students) {
      leaves.push_back(student.clone().requires_grad_(true));
    }
    const auto logprobs = [&](const at::Tensor& hidden) {
      return at::log_softmax(at::linear(hidden, wide.head) / kTemperature, -1);
    };
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (const HeadTerm& term : wide.terms()) {
      const at::Tensor log_q = logprobs(term.teacher->hidden);
      const at::Tensor value =
          (log_q.exp() * (log_q - logprobs(leaves[term.student])))
              .clamp_max(term.clip)
              .sum();
      values.push_back(value.item<double>());
      loss = loss + term.token_weight * value;
    }
    loss.backward();
    for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  }
};

struct Errors {
  double value = 0.0;
  double gradient = 0.0;

  Errors(const HeadLoss& loss, const Slow& slow) {
    for (size_t k = 0; k < slow.values.size(); ++k) {
      value = std::max(value,
                       std::abs(loss.sums[k].clipped - slow.values[k]) /
                           std::abs(slow.values[k]));
    }
    for (size_t s = 0; s < slow.gradients.size(); ++s) {
      gradient = std::max(
          gradient, RelativeError(loss.grad_hidden[s], slow.gradients[s]));
    }
  }
};

TEST_F(HeadLossTest, AgreesWithAutogradOverWholeTensorsOfDoubles) {
  const Inputs in;
  const Slow slow(in);
  const Errors fast(in.Run(InChunks(4)), slow);
  const Errors by_tensors(
      ComputeHeadLossByTensors(
          in.head, in.students, in.terms(), InChunks(4), true),
      slow);
  std::cout << "fast: values " << fast.value << ", gradients " << fast.gradient
            << "; by tensors: " << by_tensors.value << ", "
            << by_tensors.gradient << "\n";
  for (const Errors& errors : {fast, by_tensors}) {
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, 1e-5);
  }
}

TEST_F(HeadLossTest, ABfloat16HeadKeepsFloat32Logits) {
  const Inputs in = Inputs().As(at::kBFloat16);
  const HeadLoss loss = in.Run(InChunks(4));
  const Errors errors(loss, Slow(in));
  std::cout << "values " << errors.value << ", gradients " << errors.gradient
            << "\n";
  // Only the gradient's product and result are rounded.
  EXPECT_LT(errors.value, 1e-5);
  EXPECT_LT(errors.gradient, 5e-3);
  EXPECT_EQ(loss.grad_hidden[0].scalar_type(), at::kBFloat16);
}

TEST_F(HeadLossTest, OnAGpuItAgreesWithDoublesToo) {
  const auto device = ParseDevice("cuda");
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs in = Inputs().As(at::TensorOptions(dtype));
    const HeadLoss loss =
        in.As(at::TensorOptions(*device).dtype(dtype)).Run(InChunks(4));
    const Errors errors(loss, Slow(in));
    std::cout << "values " << errors.value << ", gradients " << errors.gradient
              << "\n";
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, dtype == at::kFloat ? 1e-5 : 5e-3);
  }
}

TEST_F(HeadLossTest, NeitherChunksNorThreadsChangeABit) {
  const Inputs in;
  const HeadLoss whole = in.Run(InChunks(100));
  const int threads = at::get_num_threads();
  for (const int64_t chunk : {1, 3, 4, 0}) {
    at::set_num_threads(chunk == 3 ? 3 : 1);
    const HeadLoss parts = in.Run(InChunks(chunk));
    at::set_num_threads(threads);
    for (size_t s = 0; s < in.students.size(); ++s) {
      EXPECT_TRUE(at::equal(parts.grad_hidden[s], whole.grad_hidden[s]));
    }
    for (size_t k = 0; k < whole.sums.size(); ++k) {
      EXPECT_EQ(parts.sums[k].clipped, whole.sums[k].clipped);
      EXPECT_EQ(parts.sums[k].unclipped, whole.sums[k].unclipped);
      EXPECT_EQ(parts.sums[k].clipped_tokens, whole.sums[k].clipped_tokens);
      EXPECT_EQ(parts.sums[k].tokens, kTokens);
    }
  }
}

TEST_F(HeadLossTest, ASharedTeacherCountsAsOneThatWasCopied) {
  Inputs in;
  in.teachers[2] = in.teachers[0];  // the snapshot is the base
  const HeadLoss shared = in.Run(InChunks(4));
  in.teachers[2].hidden = in.teachers[0].hidden.clone();
  const HeadLoss copied = in.Run(InChunks(4));
  for (size_t k = 0; k < shared.sums.size(); ++k) {
    EXPECT_EQ(shared.sums[k].clipped, copied.sums[k].clipped);
  }
  EXPECT_TRUE(at::equal(shared.grad_hidden[1], copied.grad_hidden[1]));
}

TEST_F(HeadLossTest, AKeptWorkspaceServesCallsOfAnySize) {
  const Inputs in;
  const HeadLoss expected = in.Run(InChunks(3));
  HeadWorkspace workspace;
  HeadLossOptions options = InChunks(3);
  options.workspace = &workspace;
  in.Run(options);
  options.chunk_bytes *= 3;
  in.Run(options);
  EXPECT_TRUE(
      at::equal(in.Run(options).grad_hidden[0], expected.grad_hidden[0]));
}

TEST_F(HeadLossTest, HiddenStatesLogitsAndTopVPayloadsGiveTheSameLoss) {
  Inputs in;
  const at::Tensor logits = at::linear(in.teachers[0].hidden, in.head);
  const auto [top, ids] =
      at::log_softmax(logits / kTemperature, -1).topk(kVocabulary, -1);
  const TeacherScores as_logits{{}, logits, {}, {}};
  const TeacherScores as_top{{}, {}, ids, top};
  const auto run = [&](const TeacherScores& scores) {
    const std::vector<HeadTerm> terms = {{&scores, 0.05, 1.0, 0},
                                         {&scores, 0.05, 1.0, 1}};
    return ComputeHeadLoss(in.head, in.students, terms, InChunks(4), true);
  };
  const HeadLoss hidden = run(in.teachers[0]);
  const at::Tensor logits_before = logits.clone();
  for (const TeacherScores* scores : {&as_logits, &as_top}) {
    const HeadLoss other = run(*scores);
    EXPECT_NEAR(other.sums[1].clipped, hidden.sums[1].clipped, 1e-5);
    EXPECT_LT(RelativeError(other.grad_hidden[1], hidden.grad_hidden[1]), 1e-5);
  }
  EXPECT_TRUE(at::equal(logits, logits_before));
}

TEST_F(HeadLossTest, WithoutGradientOnlyTheSumsAreComputed) {
  const Inputs in;
  const HeadLoss loss = in.Run(InChunks(4), /*with_gradient=*/false);
  EXPECT_TRUE(loss.grad_hidden.empty());
  EXPECT_EQ(loss.sums[1].unclipped, in.Run(InChunks(4)).sums[1].unclipped);
}

}  // namespace
}  // namespace dapd
