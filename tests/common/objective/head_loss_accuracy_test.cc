// Compares the head loss with autograd over whole tensors of doubles: all
// divergences, supports and targets, in bfloat16 and on a GPU.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/weights/placement.h"
#include "tests/common/objective/head_loss_fixture.h"

namespace dapd {
namespace {

class HeadLossAccuracyTest : public HeadLossFixture {
 protected:
  template <typename Place>
  static void ExpectEveryLossAgrees(Inputs in, const Place& place);

  // Returns a support of all entries, so that rounded logits which are equal
  // cannot change it.
  static Support WholeSupport(const Inputs& in) {
    return {SupportKind::kStudentTopK, in.num_common(), /*tail=*/false};
  }

  // Returns `in` on `device`.
  static Inputs OnDevice(const Inputs& in, at::Device device) {
    Inputs there = in.As(device);
    for (at::Tensor* each :
         {&there.ids, &there.scored, &there.route, &there.token_weights}) {
      if (each->defined()) *each = each->to(device);
    }
    return there;
  }
};

TEST_F(HeadLossAccuracyTest, AgreesWithAutogradOverWholeTensorsOfDoubles) {
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

// Compares every existing loss, fast and by tensors, on the inputs of
// place(in).
template <typename Place>
void HeadLossAccuracyTest::ExpectEveryLossAgrees(Inputs in,
                                                 const Place& place) {
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
        // A one-hot target has only this divergence; a clip would leave no
        // gradient.
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
             {Errors(place(in).Run(InChunks(4)), slow),
              Errors(place(in).RunByTensors(InChunks(4)), slow)}) {
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

TEST_F(HeadLossAccuracyTest,
       EveryDivergenceSupportAndTargetAgreesWithAutograd) {
  ExpectEveryLossAgrees(Inputs(), [](const Inputs& in) { return in; });
}

TEST_F(HeadLossAccuracyTest, EveryLossOfSeveralModelsAgreesWithAutograd) {
  ExpectEveryLossAgrees(WithThreeModels(), [](const Inputs& in) { return in; });
}

TEST_F(HeadLossAccuracyTest, AHeadThatCapsItsLogitsAgreesBesideOneThatDoesNot) {
  for (const double own_cap : {0.0, 4.0}) {
    Inputs in = WithThreeModels();
    in.GiveHead(1, kVocabulary * 3 / 2, 12, /*cap=*/3.0);
    in.softcap = own_cap;
    in.vocabulary = 0;  // the smallest head has 40 rows
    const Errors errors(in.Run(InChunks(4)), Slow(in));
    std::cout << "values " << errors.value << ", gradients " << errors.gradient
              << "\n";
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, 1e-5);
  }
}

TEST_F(HeadLossAccuracyTest, ABfloat16HeadKeepsFloat32Logits) {
  for (const Inputs& wide : {Inputs(), WithThreeModels()}) {
    const Inputs in = wide.As(at::kBFloat16);
    const HeadLoss loss = in.Run(InChunks(4));
    const Errors errors(loss, Slow(in));
    std::cout << "values " << errors.value << ", gradients " << errors.gradient
              << "\n";
    // Only the gradient's product and its result are rounded.
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, 5e-3);
    EXPECT_EQ(loss.grad_hidden[0].scalar_type(), at::kBFloat16);
  }
}

TEST_F(HeadLossAccuracyTest, LogitsInBFloat16AreTheProductsRounded) {
  for (const Inputs& inputs : {Inputs(), WithThreeModels()}) {
    for (const bool has_support : {false, true}) {
      Inputs in = WithRoundedLogits(inputs);
      if (has_support) in.support = WholeSupport(in);
      Inputs exact = in;
      exact.bfloat16_logits = false;
      const Slow slow(in);
      for (const HeadLoss& loss :
           {in.Run(InChunks(4)), in.RunByTensors(InChunks(4))}) {
        const Errors errors(loss, slow);
        const Errors of_rounding(loss, Slow(exact));
        std::cout << "values " << errors.value << ", gradients "
                  << errors.gradient << "; against exact logits "
                  << of_rounding.value << ", " << of_rounding.gradient << "\n";
        EXPECT_LT(errors.value, 1e-5);
        EXPECT_LT(errors.gradient, 5e-3);
        EXPECT_GT(of_rounding.value, 1e-4) << "nothing was rounded";
      }
    }
  }
}

// docs/objective.md has these errors. Students and teachers differ by about
// `distance` from each other. There is no clip, since an entry that is clipped
// by an error alone would hide what the distance does.
TEST_F(HeadLossAccuracyTest, LogitsInBFloat16CostMoreTheNearerATeacherIs) {
  double before = 0.0;
  for (const double distance : {0.3, 0.1, 0.03}) {
    Inputs wide;
    wide.divergence.clip = kNoClip;
    wide.head = at::randn({32'768, kHidden});
    const at::Tensor common = wide.students[0];
    for (at::Tensor& student : wide.students) {
      student = common + distance * at::randn({kTokens, kHidden});
    }
    for (TeacherScores& teacher : wide.teachers) {
      teacher.hidden = common + distance * at::randn({kTokens, kHidden});
    }
    Inputs in = wide.As(at::kBFloat16);
    const Slow slow(in);
    const Errors exact(in.Run({.temperature = kTemperature}), slow);
    in.bfloat16_logits = true;
    const HeadLoss loss = in.Run({.temperature = kTemperature});
    const Errors rounded(loss, slow);
    const double of_loss = std::abs(loss.sums[0].clipped / slow.values[0] - 1);
    std::cout << "distance " << distance << ", divergence "
              << slow.values[0] / kTokens << " a token: loss " << of_loss
              << ", gradient " << rounded.gradient << "; with float32 logits "
              << exact.value << ", " << exact.gradient << "\n";
    EXPECT_LT(exact.gradient, 5e-3);
    EXPECT_LT(rounded.gradient, 0.1);
    EXPECT_GT(rounded.gradient, before);
    before = rounded.gradient;
  }
}

// The logits of a float32 model stay float32, whoever teaches it.
TEST_F(HeadLossAccuracyTest, AFloat32StudentsLogitsAreNotRounded) {
  Inputs in = WithThreeModels();
  const Slow slow(in);
  in.bfloat16_logits = true;
  for (const HeadLoss& loss :
       {in.Run(InChunks(4)), in.RunByTensors(InChunks(4))}) {
    const Errors errors(loss, slow);
    EXPECT_LT(errors.value, 1e-5);
    EXPECT_LT(errors.gradient, 1e-5);
  }
}

// A model in float32 teaches one in bfloat16, and the other way round.
TEST_F(HeadLossAccuracyTest, HeadsMayHaveDifferentPrecisions) {
  for (const bool rounds_students : {true, false}) {
    Inputs wide = WithThreeModels();
    wide.vocabulary = 0;  // the smallest head has 40 rows
    Inputs in = wide.As(at::kBFloat16);
    if (rounds_students) {
      for (const size_t t : {1, 2}) {
        in.SetHead(t, *wide.heads[t]);
        in.teachers[t].hidden = wide.teachers[t].hidden;
      }
    } else {
      in.head = wide.head;
      in.students = wide.students;
      in.teachers[0] = wide.teachers[0];
    }
    const Slow slow(in);
    for (const HeadLoss& loss :
         {in.Run(InChunks(4)), in.RunByTensors(InChunks(4))}) {
      const Errors errors(loss, slow);
      std::cout << "values " << errors.value << ", gradients "
                << errors.gradient << "\n";
      EXPECT_LT(errors.value, 1e-5);
      EXPECT_LT(errors.gradient, rounds_students ? 1e-2 : 1e-5);
    }
  }
}

TEST_F(HeadLossAccuracyTest, OnAGpuItAgreesWithDoublesToo) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  SetUpCuda(/*deterministic=*/false, at::globalContext());
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const Inputs& wide : {Inputs(), WithThreeModels()}) {
      const Inputs in = wide.As(at::TensorOptions(dtype));
      const HeadLoss loss =
          in.As(at::TensorOptions(*device).dtype(dtype)).Run(InChunks(4));
      const Errors errors(loss, Slow(in));
      std::cout << "values " << errors.value << ", gradients "
                << errors.gradient << "\n";
      EXPECT_LT(errors.value, 1e-5);
      EXPECT_LT(errors.gradient, dtype == at::kFloat ? 1e-5 : 5e-3);
    }
  }
}

// The forms of the kernels that a call must ask for. Without clusters the block
// kernel computes them.
TEST_F(HeadLossAccuracyTest, OnAGpuEveryFormAgreesToo) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  SetUpCuda(/*deterministic=*/false, at::globalContext());
  for (const bool bfloat16_logits : {false, true}) {
    for (const int cluster_warps : {16, 32}) {
      for (const Inputs& inputs : {Inputs(), WithThreeModels()}) {
        for (const bool has_support : {false, true}) {
          Inputs in = WithRoundedLogits(inputs);
          in.bfloat16_logits = bfloat16_logits;
          if (has_support) in.support = WholeSupport(in);
          HeadLossOptions options = InChunks(4);
          options.cluster_warps = cluster_warps;
          const Errors errors(in.As(*device).Run(options), Slow(in));
          std::cout << (bfloat16_logits ? "bfloat16" : "float32") << " logits, "
                    << cluster_warps << " warps: values " << errors.value
                    << ", gradients " << errors.gradient << "\n";
          EXPECT_LT(errors.value, 1e-5);
          EXPECT_LT(errors.gradient, 5e-3);
        }
      }
    }
  }
}

// The block kernel computes losses with supports, the cluster kernel computes
// the other losses.
TEST_F(HeadLossAccuracyTest, OnAGpuEveryLossAgreesToo) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  SetUpCuda(/*deterministic=*/false, at::globalContext());
  for (const Inputs& inputs : {Inputs(), WithThreeModels()}) {
    ExpectEveryLossAgrees(
        inputs, [&](const Inputs& in) { return OnDevice(in, *device); });
  }
}

// A token's rows of this vocabulary fill a cluster of 16 blocks in every form.
TEST_F(HeadLossAccuracyTest, OnAGpuEveryFormTakesALargeVocabulary) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  SetUpCuda(/*deterministic=*/false, at::globalContext());
  Inputs in;
  in.head = at::randn({151'936, kHidden});
  for (TeacherScores& teacher : in.teachers) {
    teacher.hidden = in.students[0] + 0.3 * teacher.hidden;
  }
  in.ids = at::remainder(at::arange(kTokens) * 7919, 151'936);
  for (const bool bfloat16_logits : {false, true}) {
    Inputs here = WithRoundedLogits(in);
    here.bfloat16_logits = bfloat16_logits;
    const auto run = [&](const Inputs& on, int cluster_warps) {
      std::vector<HeadTerm> terms = on.terms();
      terms.pop_back();  // it shares a teacher
      terms[1].student = 0;
      return ComputeHeadLoss(on.head,
                             on.head_students(),
                             terms,
                             {.temperature = kTemperature,
                              .bfloat16_logits = bfloat16_logits,
                              .cluster_warps = cluster_warps},
                             true);
    };
    const HeadLoss expected = run(here, 16);
    for (const int cluster_warps : {16, 32}) {
      const HeadLoss ours = run(OnDevice(here, *device), cluster_warps);
      for (size_t k = 0; k < expected.sums.size(); ++k) {
        EXPECT_NEAR(ours.sums[k].clipped / expected.sums[k].clipped, 1.0, 1e-5);
      }
      for (size_t s = 0; s < expected.grad_hidden.size(); ++s) {
        const double error = RelativeError(ours.grad_hidden[s].to(at::kFloat),
                                           expected.grad_hidden[s]);
        std::cout << cluster_warps << " warps, gradient " << s << ": error "
                  << error << "\n";
        EXPECT_LT(error, 1e-2);
      }
      EXPECT_LT(
          RelativeError(ours.token_logprobs[0], expected.token_logprobs[0]),
          1e-5);
    }
  }
}

// A token's rows of this vocabulary fill a cluster of 16 blocks; with a support
// a block reads them from memory.
TEST_F(HeadLossAccuracyTest, OnAGpuALargeVocabularyGivesWhatTheCpuGives) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) {
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  SetUpCuda(/*deterministic=*/false, at::globalContext());
  constexpr int64_t kLarge = 151'936;
  Inputs in;
  in.head = at::randn({kLarge, kHidden});
  for (TeacherScores& teacher : in.teachers) {
    teacher.hidden = in.students[0] + 0.3 * teacher.hidden;
  }
  in.ids = at::remainder(at::arange(kTokens) * 7919, kLarge);
  // The product that leads back to hidden states adds up 151,936 numbers in
  // float32. If a library adds them one by one, each sum loses half a unit of
  // its last place in either direction: sqrt(V) of them.
  const double of_sums = std::sqrt(static_cast<double>(kLarge)) * 0x1p-24;
  for (const Support& support :
       {Support{}, Support{SupportKind::kStudentTopK, 100, true}}) {
    const auto run = [&support](const Inputs& on) {
      std::vector<HeadTerm> terms = on.terms();
      terms.pop_back();  // it shares a teacher
      terms[1].student = 0;
      terms[2].support = support;
      return ComputeHeadLoss(
          on.head, on.head_students(), terms, HeadLossOptions(), true);
    };
    const HeadLoss expected = run(in);
    const HeadLoss ours = run(OnDevice(in, *device));
    for (size_t k = 0; k < expected.sums.size(); ++k) {
      EXPECT_NEAR(ours.sums[k].clipped / expected.sums[k].clipped, 1.0, 1e-5);
      EXPECT_EQ(ours.sums[k].clipped_tokens, expected.sums[k].clipped_tokens);
    }
    for (size_t s = 0; s < expected.grad_hidden.size(); ++s) {
      const double error =
          RelativeError(ours.grad_hidden[s], expected.grad_hidden[s]);
      std::cout << "gradient " << s << ": error " << error << "\n";
      EXPECT_LT(error, 1e-5 + 2 * of_sums);
    }
    EXPECT_LT(RelativeError(ours.token_logprobs[0], expected.token_logprobs[0]),
              1e-5);
  }
}

}  // namespace
}  // namespace dapd
