// Compares both forms of the CUDA loss kernel, on a host that simulates the
// device, with the host twin (common/kernels/divergence_kernel.h) and with the
// definition in float64: losses by their formulas, gradients by central
// differences of these losses.

#include "common/kernels/cuda/divergence_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/divergence_kernel.h"
#include "tests/fakes/cuda/divergence_runs.h"
#include "tests/fakes/cuda/kernel_inputs.h"
#include "tests/fakes/divergence_definition.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

using fake::DivergenceForm;
using fake::DivergenceResult;
using fake::InSeveralOrders;
using fake::RunDivergenceKernel;
using fake::RunDivergenceTwin;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Case = DivergenceCase;
using Problem = DivergenceProblem;

double Error(double ours, double expected) {
  // Near zero the error is relative to 0.05, because probabilities in float32
  // do not sum to exactly one.
  return std::abs(ours - expected) / (std::abs(expected) + 0.05);
}

// Returns all entries of a short row; of a long row, its ends and the edges of
// the kernel's tiles.
std::vector<int64_t> EntriesToCheck(int64_t vocabulary) {
  std::vector<int64_t> entries;
  for (int64_t v = 0; v < vocabulary; ++v) {
    const int64_t in_tile = v % 2048;
    if (vocabulary <= 64 || v + 2 >= vocabulary || v < 2 ||
        in_tile % 512 == 0 || in_tile == 2047) {
      entries.push_back(v);
    }
  }
  return entries;
}

void Check(const Case& c,
           CudaNumber number,
           int64_t gap = 3,
           DivergenceForm form = {}) {
  Problem problem(c);
  if (form.has_narrow_logits) {
    for (std::vector<float>& logits : problem.logits) {
      for (float& logit : logits) logit = RoundedTo<BFloat16>(logit);
    }
  }
  DivergenceResult ours;
  ASSERT_NO_FATAL_FAILURE(RunDivergenceKernel(problem,
                                              number,
                                              gap,
                                              &ours,
                                              /*with_gradient=*/true,
                                              /*teacher_gap=*/0,
                                              form));
  const DivergenceResult twin = RunDivergenceTwin(problem);
  const size_t num_terms = problem.terms.size();
  double sum_error = 0.0;
  double gradient_error = 0.0;  // relative to the largest entry
  for (int64_t t = 0; t < c.tokens; ++t) {
    DivergenceDefinition definition(problem, t);
    for (size_t k = 0; k < num_terms; ++k) {
      const DivergenceTokenSums& sums = ours.sums[t * num_terms + k];
      const DivergenceTokenSums& expected = twin.sums[t * num_terms + k];
      for (const double error :
           {Error(sums.clipped, definition.Loss(k, c.clip)),
            Error(sums.unclipped, definition.Loss(k, kInfinity)),
            Error(sums.clipped, expected.clipped),
            Error(sums.mass, expected.mass)}) {
        sum_error = Worse(sum_error, error);
      }
      ASSERT_EQ(sums.any_clipped, expected.any_clipped) << c.name;
    }
    ASSERT_NEAR(ours.logprobs[t], definition.LogProbability(1), 2e-6) << c.name;
    for (size_t s = 0; s < kStudents; ++s) {
      const float* row = ours.gradient[s].data() + t * c.vocabulary;
      const float* other = twin.gradient[s].data() + t * c.vocabulary;
      double largest = 1e-6;
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        largest = std::max<double>(largest, std::abs(other[v]));
      }
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        gradient_error =
            Worse(gradient_error, std::abs(row[v] - other[v]) / largest);
      }
      for (const int64_t v : EntriesToCheck(c.vocabulary)) {
        const double exact = definition.Derivative(static_cast<int>(s), v);
        gradient_error =
            Worse(gradient_error, std::abs(row[v] - exact) / largest);
      }
    }
  }
  std::cout << c.name << ": sums " << sum_error << ", gradient "
            << gradient_error << "\n";
  ASSERT_LT(sum_error, 2e-5) << c.name;
  ASSERT_LT(gradient_error,
            number == CudaNumber::kFloat32
                ? 2e-5
                : 1.5 * fake::UnitRoundoff<BFloat16>())
      << c.name;
}

// Simulates a device whose blocks have `shared_bytes` of shared memory, in
// clusters of at most `blocks` blocks; 0 means no clusters.
void PlayDevice(unsigned blocks, size_t shared_bytes = size_t{227} << 10) {
  fake::SetTraits(
      {.major = blocks == 0 ? 8 : 9,
       .multiprocessors = static_cast<int>(std::max(2U * blocks, 1U)),
       .shared_bytes = shared_bytes,
       .largest_cluster = blocks});
}

// Simulates a device with room for one cluster, which takes all tokens.
void PlayOneCluster(size_t shared_bytes) {
  fake::SetTraits({.major = 9,
                   .multiprocessors = 1,
                   .shared_bytes = shared_bytes,
                   .largest_cluster = 16});
}

// Checks rows that are not aligned for copies of 16 bytes, and rows that are.
void CheckUnalignedAndAligned(const Case& c, DivergenceForm form = {}) {
  for (const int64_t gap : {3, 8}) {
    Check(c, CudaNumber::kBFloat16, gap, form);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Checks one block per token, one block with the rows in its shared memory, and
// clusters.
void CheckAll(const std::vector<Case>& cases,
              CudaNumber number = CudaNumber::kFloat32) {
  constexpr size_t kLittle = size_t{30} << 10;
  for (const Case& c : cases) {
    PlayDevice(0);
    InSeveralOrders([&] { Check(c, number); });
    if (testing::Test::HasFatalFailure()) return;
    PlayDevice(1);
    InSeveralOrders([&] { Check(c, number); });
    if (testing::Test::HasFatalFailure()) return;
    PlayDevice(4, kLittle);
    Check(c, number);
    if (testing::Test::HasFatalFailure()) return;
  }
  fake::SetTraits({});
}

using enum DivergenceKind;

TEST(CudaDivergenceOnHostTest, AnyVocabularyAndNumberOfTokens) {
  CheckAll({{.name = "one entry", .vocabulary = 1},
            {.name = "fewer than a warp", .tokens = 2, .vocabulary = 5},
            {.name = "a thread more", .tokens = 3, .vocabulary = 513},
            {.name = "a tile", .vocabulary = 2048},
            {.name = "two tiles and one", .vocabulary = 4097}});
}

TEST(CudaDivergenceOnHostTest, GradientsInBFloat16) {
  CheckAll({{.name = "a part of a tile", .tokens = 2},
            {.name = "tiles", .vocabulary = 4201},
            {.name = "support", .tokens = 2, .supports = Supports::kWithTail}},
           CudaNumber::kBFloat16);
}

TEST(CudaDivergenceOnHostTest, EveryDivergence) {
  CheckAll({{.name = "not clipped", .tokens = 2, .clip = kInfinity},
            {.name = "peaked", .vocabulary = 64, .spread = 9.0F},
            {.name = "reverse", .tokens = 2, .kind = kReverseKl},
            {.name = "reverse, warm",
             .kind = kReverseKl,
             .clip = kInfinity,
             .scale = 0.6F},
            {.name = "js", .tokens = 2, .kind = kJensenShannon, .clip = 0.02F},
            {.name = "js, cool", .kind = kJensenShannon, .scale = 1.4F}});
}

TEST(CudaDivergenceOnHostTest, KindsAndWeightsThatDifferByTerm) {
  CheckAll({{.name = "mixed", .tokens = 3, .weights = true, .mixed = true},
            {.name = "mixed, none clipped",
             .tokens = 2,
             .vocabulary = 700,
             .clip = kInfinity,
             .mixed = true},
            {.name = "mixed, js",
             .tokens = 3,
             .kind = kJensenShannon,
             .clip = 0.01F,
             .weights = true,
             .mixed = true}});
}

// There are more tokens than clusters, and the clusters begin one after the
// other.
TEST(CudaDivergenceOnHostTest, ManyTokens) {
  PlayDevice(1);
  Check({.name = "many tokens", .tokens = 11, .vocabulary = 30},
        CudaNumber::kFloat32);
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, DerivedTargets) {
  CheckAll({{.name = "mixture", .tokens = 2, .targets = Targets::kMixture},
            {.name = "centred mixture",
             .tokens = 2,
             .vocabulary = 600,
             .scale = 0.8F,
             .targets = Targets::kCentredMixture},
            {.name = "routed", .tokens = 3, .targets = Targets::kRouted},
            {.name = "one-hot",
             .tokens = 2,
             .clip = kInfinity,
             .scale = 0.7F,
             .targets = Targets::kOneHot}});
}

TEST(CudaDivergenceOnHostTest, SupportsAndWeightsOfTokens) {
  CheckAll({{.name = "weights", .tokens = 3, .weights = true},
            {.name = "support",
             .tokens = 2,
             .clip = kInfinity,
             .supports = Supports::kNormalised},
            {.name = "support that a side gives less than a double holds",
             .tokens = 2,
             .spread = 900.0F,
             .clip = kInfinity,
             .supports = Supports::kNormalised},
            {.name = "support with a tail",
             .tokens = 3,
             .scale = 0.9F,
             .supports = Supports::kWithTail,
             .weights = true},
            {.name = "reverse, support with a tail",
             .vocabulary = 700,
             .kind = kReverseKl,
             .supports = Supports::kWithTail}});
}

// A larger cluster is chosen if a smaller cluster has no room; one cluster
// takes several tokens.
TEST(CudaDivergenceOnHostTest, ClustersOfEverySizeThatHasToBe) {
  const Case c{.name = "cluster", .tokens = 3, .vocabulary = 600};
  for (const size_t shared_bytes : {size_t{27'000}, size_t{33'000}}) {
    PlayOneCluster(shared_bytes);
    CheckUnalignedAndAligned(c);
    if (HasFatalFailure()) return;
  }
  fake::SetTraits({});
}

// One cluster, of one block or of several, takes the tokens one after the
// other. It loads the next token's rows while it still needs some of the
// current rows.
TEST(CudaDivergenceOnHostTest, TokensOneBehindTheOther) {
  constexpr size_t kLarge = size_t{227} << 10;
  constexpr size_t kLittle = 27'000;
  for (const size_t shared_bytes : {kLarge, kLittle}) {
    PlayOneCluster(shared_bytes);
    const int64_t vocabulary = shared_bytes == kLarge ? 6'164 : 604;
    for (const Targets targets : {Targets::kTeachers,
                                  Targets::kCentredMixture,
                                  Targets::kRouted,
                                  Targets::kOneHot}) {
      InSeveralOrders([&] {
        // The students of every third token have no terms.
        CheckUnalignedAndAligned({.name = "weights",
                                  .tokens = 4,
                                  .vocabulary = vocabulary,
                                  .targets = targets,
                                  .weights = true});
      });
      if (HasFatalFailure()) return;
    }
    CheckUnalignedAndAligned({.name = "mixed",
                              .tokens = 4,
                              .vocabulary = vocabulary,
                              .weights = true,
                              .mixed = true});
    if (HasFatalFailure()) return;
  }
  fake::SetTraits({});
}

// The forms that a call must ask for: more warps, bfloat16 logits, and both.
TEST(CudaDivergenceOnHostTest, EveryFormOnRowsOfEveryKind) {
  for (const DivergenceForm form : {DivergenceForm{.cluster_warps = 32},
                                    DivergenceForm{.has_narrow_logits = true},
                                    DivergenceForm{true, 32}}) {
    // One block with room for its rows, in which some threads have two groups
    // of a row; then a cluster.
    for (const auto& [shared_bytes, vocabulary] :
         {std::pair{size_t{227} << 10, int64_t{4'108}},
          std::pair{size_t{36'000}, int64_t{604}}}) {
      PlayOneCluster(shared_bytes);
      for (const Targets targets : {Targets::kTeachers,
                                    Targets::kCentredMixture,
                                    Targets::kRouted,
                                    Targets::kOneHot}) {
        if (vocabulary > 604 && targets != Targets::kTeachers) continue;
        fake::TakeLaunches();
        CheckUnalignedAndAligned({.name = "weights",
                                  .tokens = 3,
                                  .vocabulary = vocabulary,
                                  .targets = targets,
                                  .weights = true},
                                 form);
        if (HasFatalFailure()) return;
        EXPECT_NE(fake::TakeLaunches().blocks, 2 * 3)
            << "the block kernel has taken the calls";
      }
    }
    InSeveralOrders([&] {
      CheckUnalignedAndAligned({.name = "mixed",
                                .tokens = 3,
                                .vocabulary = 601,
                                .weights = true,
                                .mixed = true},
                               form);
    });
    if (HasFatalFailure()) return;
    // The block kernel has one number of warps.
    if (form.cluster_warps == 32) continue;
    PlayDevice(0);
    for (const Case& c :
         {Case{.name = "block", .tokens = 2, .vocabulary = 2201},
          Case{.name = "block, mixture",
          .tokens = 2,
          .targets = Targets::kCentredMixture},
          Case{.name = "block, support",
          .tokens = 2,
          .supports = Supports::kWithTail}}) {
      InSeveralOrders([&] { CheckUnalignedAndAligned(c, form); });
      if (HasFatalFailure()) return;
    }
  }
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, NarrowLogitsAreReadOnceAndHaveNarrowGradients) {
  const Case c{.name = "narrow traffic", .tokens = 2, .vocabulary = 600};
  PlayOneCluster(size_t{227} << 10);
  fake::TakeTraffic();
  Check(c, CudaNumber::kBFloat16, 8, {.has_narrow_logits = true});
  const fake::Traffic traffic = fake::TakeTraffic();
  const auto entries = static_cast<uint64_t>(c.tokens * c.vocabulary);
  // A few scored tokens and the sums are read and written as well.
  constexpr uint64_t kFew = 1024;
  EXPECT_GE(traffic.bytes_read, entries * kSources * sizeof(BFloat16));
  EXPECT_LT(traffic.bytes_read, entries * kSources * sizeof(BFloat16) + kFew);
  EXPECT_LT(traffic.bytes_written,
            entries * kStudents * sizeof(BFloat16) + kFew);
  CudaDivergenceArgs args{.num_sources = 1, .num_tokens = 1, .vocabulary = 8};
  args.sources[0].is_narrow = true;
  EXPECT_NE(DapdCudaDivergence(&args, nullptr), 0)
      << "a float32 gradient has no room";
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, SumsAloneAreTheSame) {
  const Problem problem(
      {.name = "sums alone", .tokens = 5, .vocabulary = 604, .weights = true});
  for (const size_t shared_bytes : {size_t{227} << 10, size_t{27'000}}) {
    PlayOneCluster(shared_bytes);
    DivergenceResult with;
    DivergenceResult without;
    RunDivergenceKernel(problem, CudaNumber::kFloat32, 3, &with);
    RunDivergenceKernel(problem, CudaNumber::kFloat32, 3, &without, false);
    if (HasFatalFailure()) return;
    EXPECT_EQ(without.logprobs, with.logprobs);
    for (size_t i = 0; i < with.sums.size(); ++i) {
      EXPECT_EQ(without.sums[i].clipped, with.sums[i].clipped) << i;
      EXPECT_EQ(without.sums[i].mass, with.sums[i].mass) << i;
    }
    EXPECT_EQ(without.gradient[0], problem.logits[0]) << "left alone";
  }
  fake::SetTraits({});
}

// Only log-probabilities are computed, with one exchange per token.
// A teacher with a larger vocabulary sent its logits: its rows lie farther
// apart, in steps of 16 bytes or not.
TEST(CudaDivergenceOnHostTest, ATeachersRowsMayLieFartherApart) {
  const Problem problem({.name = "rows", .tokens = 3, .vocabulary = 516});
  for (const unsigned blocks : {0U, 1U, 4U}) {
    PlayDevice(blocks, size_t{30} << 10);
    DivergenceResult expected;
    ASSERT_NO_FATAL_FAILURE(
        RunDivergenceKernel(problem, CudaNumber::kFloat32, 8, &expected));
    for (const int64_t teacher_gap : {260, 257}) {
      DivergenceResult result;
      ASSERT_NO_FATAL_FAILURE(RunDivergenceKernel(problem,
                                                  CudaNumber::kFloat32,
                                                  8,
                                                  &result,
                                                  /*with_gradient=*/true,
                                                  teacher_gap));
      EXPECT_EQ(result.gradient, expected.gradient);
      EXPECT_EQ(result.logprobs, expected.logprobs);
      for (size_t i = 0; i < expected.sums.size(); ++i) {
        EXPECT_EQ(result.sums[i].clipped, expected.sums[i].clipped);
      }
    }
  }
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, NoTermsAtAll) {
  Problem problem({.name = "no terms", .tokens = 5, .vocabulary = 604});
  DivergenceResult expected;
  fake::SetTraits({.major = 8, .multiprocessors = 1});
  RunDivergenceKernel(problem, CudaNumber::kFloat32, 3, &expected, false);
  problem.terms.clear();
  for (const bool with_gradient : {false, true}) {
    DivergenceResult ours;
    PlayOneCluster(27'000);
    InSeveralOrders([&] {
      RunDivergenceKernel(
          problem, CudaNumber::kFloat32, 3, &ours, with_gradient);
    });
    if (HasFatalFailure()) return;
    for (size_t t = 0; t < ours.logprobs.size(); ++t) {
      EXPECT_NEAR(ours.logprobs[t], expected.logprobs[t], 1e-6) << t;
    }
    if (!with_gradient) continue;
    EXPECT_EQ(ours.gradient[0], std::vector<float>(problem.logits[0].size()));
  }
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, ClustersReadAndWriteEveryLogitOnce) {
  const Case c{.name = "traffic", .tokens = 2, .vocabulary = 600};
  PlayDevice(4, size_t{30} << 10);
  fake::TakeTraffic();
  Check(c, CudaNumber::kBFloat16);
  const fake::Traffic traffic = fake::TakeTraffic();
  const auto entries = static_cast<uint64_t>(c.tokens * c.vocabulary);
  // A few scored tokens and the sums are read and written as well.
  constexpr uint64_t kFew = 1024;
  EXPECT_GE(traffic.bytes_read, entries * kSources * sizeof(float));
  EXPECT_LT(traffic.bytes_read, entries * kSources * sizeof(float) + kFew);
  EXPECT_LT(traffic.bytes_written,
            entries * kStudents * sizeof(BFloat16) + kFew);
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, TokensAtATimeAreThoseOfTheFormThatIsTaken) {
  CudaDivergenceArgs args{.num_sources = 2, .num_terms = 1, .vocabulary = 2000};
  args.sources[0].is_student = true;
  args.terms[0] = {.student = 0, .target = 1};
  fake::SetTraits({.major = 9, .multiprocessors = 8});
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 8) << "a block a token";
  fake::SetTraits({.major = 9,
                   .multiprocessors = 8,
                   .shared_bytes = 31'000,
                   .largest_cluster = 8});
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 4) << "two blocks a token";
  fake::SetTraits({.major = 8, .multiprocessors = 8});
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 16) << "from memory";
  // The arguments become two students, three teachers and Qwen3's vocabulary on
  // an H100.
  args.num_sources = 5;
  args.num_terms = 3;
  args.vocabulary = 151'936;
  args.sources[1].is_student = true;
  args.terms[0] = {.student = 0, .target = 2};
  args.terms[1] = {.student = 1, .target = 3};
  args.terms[2] = {.student = 1, .target = 4};
  fake::SetTraits({.major = 9, .multiprocessors = 132, .largest_cluster = 16});
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 8) << "16 blocks a token";
  // By the times in docs/cuda.md, three clusters are faster than one block per
  // token, and two clusters are not.
  for (const auto& [clusters, tokens] : {std::pair{3, 3}, {2, 264}, {1, 264}}) {
    fake::SetTraits({.major = 9,
                     .multiprocessors = 132,
                     .largest_cluster = 16,
                     .most_clusters = clusters});
    EXPECT_EQ(DapdCudaDivergenceTokens(&args), tokens) << clusters;
  }
  fake::SetTraits({.major = 9, .multiprocessors = 132, .largest_cluster = 16});
  args.terms[1].target = 2;
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 264) << "no room for six rows";
  fake::SetTraits({.major = 9, .multiprocessors = 8});
  args.terms[0].support_size = 4;
  EXPECT_EQ(DapdCudaDivergenceTokens(&args), 16) << "a support is declined";
  fake::SetTraits({});
}

TEST(CudaDivergenceOnHostTest, NothingToDoIsDone) {
  const CudaDivergenceArgs args{.num_tokens = 0};
  EXPECT_EQ(DapdCudaDivergence(&args, nullptr), 0);
}

}  // namespace
}  // namespace dapd
