#include "common/objective/head_loss.h"

#include <vector>

#include "gtest/gtest.h"

#include "tests/common/objective/head_loss_fixture.h"

namespace dapd {
namespace {

class HeadLossTest : public HeadLossFixture {};

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
