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
  at::Tensor ids;
  at::Tensor scored = at::remainder(at::arange(kTokens) * 3, kVocabulary);
  Target target = TeacherPass{};
  Divergence divergence;
  Support support;
  int64_t skip_tokens = 0;
  at::Tensor route;
  at::Tensor token_weights;

  std::vector<HeadTerm> terms() const {
    std::vector<HeadTerm> terms;
    const auto add = [&](size_t teacher, double clip, double weight, size_t s) {
      terms.push_back({.target = &target,
                       .passes = {&teachers[teacher]},
                       .divergence = divergence,
                       .support = support,
                       .student = s,
                       .token_weight = weight});
      terms.back().divergence.clip =
          divergence.clip == kNoClip ? kNoClip : clip;
      if (std::holds_alternative<TeacherPass>(target)) return;
      if (std::holds_alternative<OneHot>(target)) {
        terms.back().passes.clear();
        terms.back().ids = scored;
        return;
      }
      terms.back().passes = {&teachers[0], &teachers[1]};
      if (std::holds_alternative<Mixture>(target)) {
        terms.back().passes.push_back(&teachers[2]);
      } else {
        terms.back().route = route;
        terms.back().token_weights = token_weights;
      }
    };
    add(0, 0.05, 0.3, 0);
    add(1, 0.02, 0.1, 1);
    add(2, 0.05, 0.7, 1);
    add(1, 0.05, 0.2, 0);
    terms[3].skip_tokens = skip_tokens;
    return terms;
  }

  std::vector<HeadStudent> head_students() const {
    return {{students[0], ids}, {students[1], {}}};
  }

  HeadLoss Run(const HeadLossOptions& options,
               bool with_gradient = true) const {
    return ComputeHeadLoss(
        head, head_students(), terms(), options, with_gradient);
  }
  HeadLoss RunByTensors(const HeadLossOptions& options) const {
    return ComputeHeadLossByTensors(
        head, head_students(), terms(), options, true);
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
      const at::Tensor value =
          LossOf(in, term, logprobs(leaves[term.student]), logprobs);
      values.push_back(value.item<double>());
      loss = loss + term.token_weight * value;
    }
    loss.backward();
    for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  }

  template <typename Logprobs>
  static at::Tensor TargetOf(const Inputs& in,
                             const HeadTerm& term,
                             const Logprobs& logprobs) {
    if (std::holds_alternative<OneHot>(*term.target)) {
      return at::full({kTokens, kVocabulary}, -1e3, at::kDouble)
          .scatter(1, in.scored.unsqueeze(1), 0.0);
    }
    const at::Tensor first = logprobs(term.passes[0]->hidden);
    if (const auto* mixture = std::get_if<Mixture>(term.target)) {
      at::Tensor delta = at::zeros_like(first);
      for (size_t i = 0; i < mixture->delta.size(); ++i) {
        delta = delta +
                mixture->delta[i].factor * logprobs(term.passes[i + 1]->hidden);
      }
      if (mixture->recentre) delta = delta - delta.mean(-1, true);
      if (mixture->soft_clip < kNoClip) {
        delta = mixture->soft_clip * at::tanh(delta / mixture->soft_clip);
      }
      return at::log_softmax(first + mixture->strength * delta, -1);
    }
    if (std::holds_alternative<Routed>(*term.target)) {
      return at::where(in.route.to(at::kBool).unsqueeze(1),
                       logprobs(term.passes[1]->hidden),
                       first);
    }
    return first;
  }

  template <typename Logprobs>
  static at::Tensor LossOf(const Inputs& in,
                           const HeadTerm& term,
                           at::Tensor log_p,
                           const Logprobs& logprobs) {
    at::Tensor log_q = TargetOf(in, term, logprobs);
    if (term.support.kind != SupportKind::kFull) {
      const at::Tensor& by =
          term.support.kind == SupportKind::kStudentTopK ? log_p : log_q;
      const at::Tensor ids = std::get<1>(by.topk(term.support.k, -1));
      const auto restrict = [&](const at::Tensor& all) {
        const at::Tensor few = all.gather(1, ids);
        const at::Tensor sum = few.logsumexp(-1, true);
        return term.support.tail ? at::cat({few, at::log1p(-sum.exp())}, 1)
                                 : few - sum;
      };
      const at::Tensor few = restrict(log_p);
      log_q = restrict(log_q);
      log_p = few;
    }
    const at::Tensor p = log_p.exp();
    const at::Tensor q = log_q.exp();
    at::Tensor components = q * (log_q - log_p);
    if (term.divergence.kind == DivergenceKind::kReverseKl) {
      components = p * (log_p - log_q);
    } else if (term.divergence.kind == DivergenceKind::kJensenShannon) {
      const double beta = term.divergence.beta;
      const at::Tensor log_m = at::log(beta * q + (1.0 - beta) * p);
      components =
          beta * q * (log_q - log_m) + (1.0 - beta) * p * (log_p - log_m);
    }
    at::Tensor tokens = components.clamp_max(term.divergence.clip).sum(-1);
    if (term.token_weights.defined()) {
      tokens = tokens * term.token_weights.to(at::kDouble);
    }
    return tokens.slice(0, term.skip_tokens).sum();
  }
};

struct Errors {
  double value = 0.0;
  double gradient = 0.0;

  // A value below 0.01 per token is what float32 leaves of larger numbers that
  // cancel: its error is taken relative to that.
  Errors(const HeadLoss& loss, const Slow& slow) {
    for (size_t k = 0; k < slow.values.size(); ++k) {
      value = std::max(value,
                       std::abs(loss.sums[k].clipped - slow.values[k]) /
                           std::max(std::abs(slow.values[k]), 0.01 * kTokens));
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
  const Errors by_tensors(in.RunByTensors(InChunks(4)), slow);
  std::cout << "fast: values " << fast.value << ", gradients " << fast.gradient
            << "; by tensors: " << by_tensors.value << ", "
            << by_tensors.gradient << "\n";
  for (const Errors& errors : {fast, by_tensors}) {
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, 1e-5);
  }
}

std::vector<Divergence> Divergences() {
  using enum DivergenceKind;
  return {{kForwardKl, 0.5, 0.05},
          {kForwardKl, 0.5, kNoClip},
          {kReverseKl, 0.5, 0.05},
          {kReverseKl, 0.5, kNoClip},
          {kJensenShannon, 0.5, 0.05},
          {kJensenShannon, 0.5, kNoClip},
          {kJensenShannon, 0.2, kNoClip}};
}

std::vector<Support> Supports() {
  return {{},
          {SupportKind::kStudentTopK, 7, true},
          {SupportKind::kStudentTopK, 7, false},
          {SupportKind::kTeacherTopK, 7, true}};
}

std::vector<Target> Targets() {
  const TeacherPass pass;
  return {pass,
          Mixture{.anchor = pass,
                  .delta = {{pass, 1.0}, {pass, -0.5}},
                  .recentre = true,
                  .soft_clip = 2.0,
                  .strength = 0.7},
          Mixture{.anchor = pass, .delta = {{pass, 0.5}, {pass, -0.25}}},
          Routed{pass, pass},
          OneHot{}};
}

TEST_F(HeadLossTest, EveryDivergenceSupportAndTargetAgreesWithAutograd) {
  Inputs in;
  in.skip_tokens = 3;
  in.route = at::randint(2, {kTokens}).to(at::kByte);
  in.token_weights = at::rand({kTokens});
  in.token_weights[2] = 0.0;
  int64_t count = 0;
  double value = 0.0;
  double gradient = 0.0;
  for (const Target& target : Targets()) {
    for (const Divergence& divergence : Divergences()) {
      for (const Support& support : Supports()) {
        if (support.kind == SupportKind::kTeacherTopK &&
            !std::holds_alternative<TeacherPass>(target)) {
          continue;
        }
        // The one that a one-hot target has; a clip leaves no gradient.
        if (std::holds_alternative<OneHot>(target) &&
            (divergence.kind != DivergenceKind::kForwardKl ||
             divergence.clip != kNoClip ||
             support.kind != SupportKind::kFull)) {
          continue;
        }
        in.target = target;
        in.divergence = divergence;
        in.support = support;
        const Slow slow(in);
        for (const Errors& errors :
             {Errors(in.Run(InChunks(4)), slow),
              Errors(in.RunByTensors(InChunks(4)), slow)}) {
          EXPECT_LT(errors.value, 1e-5)
              << target.index() << " " << static_cast<int>(divergence.kind)
              << " " << static_cast<int>(support.kind);
          EXPECT_LT(errors.gradient, 1e-4)
              << target.index() << " " << static_cast<int>(divergence.kind)
              << " " << static_cast<int>(support.kind);
          value = std::max(value, errors.value);
          gradient = std::max(gradient, errors.gradient);
          ++count;
        }
      }
    }
  }
  std::cout << count << " losses: values " << value << ", gradients "
            << gradient << "\n";
}

TEST_F(HeadLossTest, SkippedTokensAreNotCounted) {
  Inputs in;
  in.skip_tokens = 3;
  for (const HeadLoss& loss :
       {in.Run(InChunks(2)), in.RunByTensors(InChunks(2))}) {
    EXPECT_EQ(loss.sums[0].tokens, kTokens);
    EXPECT_EQ(loss.sums[3].tokens, kTokens - 3);
  }
}

TEST_F(HeadLossTest, ScoredTokensHaveTheirLogProbabilitiesAtTemperatureOne) {
  Inputs in;
  in.ids = at::randint(kVocabulary, {kTokens}, at::kLong);
  const at::Tensor expected =
      at::log_softmax(at::linear(in.students[0], in.head), -1)
          .gather(1, in.ids.unsqueeze(1))
          .squeeze(1);
  for (const HeadLoss& loss :
       {in.Run(InChunks(4)), in.RunByTensors(InChunks(4))}) {
    EXPECT_LT((loss.token_logprobs[0] - expected).abs().max().item<double>(),
              1e-5);
    EXPECT_FALSE(loss.token_logprobs[1].defined());
  }
  const HeadLoss without = Inputs(in).Run(InChunks(4));
  in.ids = at::Tensor();
  EXPECT_TRUE(
      at::equal(in.Run(InChunks(4)).grad_hidden[0], without.grad_hidden[0]));
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

// A token's rows of this vocabulary fill a cluster of 16 blocks.
TEST_F(HeadLossTest, OnAGpuALargeVocabularyGivesWhatTheCpuGives) {
  const auto device = ParseDevice("cuda");
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  constexpr int64_t kLarge = 151'936;
  Inputs in;
  in.head = at::randn({kLarge, kHidden});
  for (TeacherScores& teacher : in.teachers) {
    teacher.hidden = in.students[0] + 0.3 * teacher.hidden;
  }
  in.ids = at::remainder(at::arange(kTokens) * 7919, kLarge);
  const auto run = [](const Inputs& on) {
    std::vector<HeadTerm> terms = on.terms();
    terms.pop_back();  // the one that shares a teacher
    terms[1].student = 0;
    return ComputeHeadLoss(
        on.head, on.head_students(), terms, HeadLossOptions(), true);
  };
  const HeadLoss expected = run(in);
  Inputs on_gpu = in.As(*device);
  on_gpu.ids = in.ids.to(*device);
  const HeadLoss ours = run(on_gpu);
  for (size_t k = 0; k < expected.sums.size(); ++k) {
    EXPECT_NEAR(ours.sums[k].clipped / expected.sums[k].clipped, 1.0, 1e-5);
    EXPECT_EQ(ours.sums[k].clipped_tokens, expected.sums[k].clipped_tokens);
  }
  for (size_t s = 0; s < expected.grad_hidden.size(); ++s) {
    EXPECT_LT(RelativeError(ours.grad_hidden[s], expected.grad_hidden[s]),
              1e-5);
  }
  EXPECT_LT(RelativeError(ours.token_logprobs[0], expected.token_logprobs[0]),
            1e-5);
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

TEST_F(HeadLossTest, AGradientMayTakeThePlaceOfItsHiddenStates) {
  const Inputs in;
  std::vector<HeadStudent> students = in.head_students();
  for (HeadStudent& student : students) {
    student.hidden = student.hidden.clone();
    student.gradient = student.hidden;
  }
  const HeadLoss fresh = in.Run(InChunks(3));
  const HeadLoss in_place =
      ComputeHeadLoss(in.head, students, in.terms(), InChunks(3), true);
  for (size_t s = 0; s < students.size(); ++s) {
    EXPECT_TRUE(in_place.grad_hidden[s].is_same(students[s].hidden));
    EXPECT_TRUE(at::equal(in_place.grad_hidden[s], fresh.grad_hidden[s]));
  }
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
    std::vector<HeadTerm> terms;
    for (const size_t student : {0, 1}) {
      terms.push_back({.target = &in.target,
                       .passes = {&scores},
                       .student = student,
                       .token_weight = 1.0});
    }
    return ComputeHeadLoss(
        in.head, in.head_students(), terms, InChunks(4), true);
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
