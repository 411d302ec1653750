#include "common/objective/head_loss.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/objective/head_loss_fixture.h"
#include "tests/fakes/small_memory.h"

namespace dapd {
namespace {

class HeadLossTest : public HeadLossFixture {
 protected:
  static void ExpectSameBits(const HeadLoss& a, const HeadLoss& b) {
    for (size_t k = 0; k < a.sums.size(); ++k) {
      EXPECT_EQ(a.sums[k].clipped, b.sums[k].clipped) << k;
      EXPECT_EQ(a.sums[k].unclipped, b.sums[k].unclipped) << k;
      EXPECT_EQ(a.sums[k].clipped_tokens, b.sums[k].clipped_tokens) << k;
    }
    for (size_t s = 0; s < a.grad_hidden.size(); ++s) {
      EXPECT_TRUE(at::equal(a.grad_hidden[s], b.grad_hidden[s])) << s;
    }
  }

  // Returns the message of the error that a function throws.
  static std::string ErrorOf(const std::function<void()>& function) {
    try {
      function();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "none";
  }
};

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
  for (const Inputs& in : {Inputs(), WithThreeModels()}) {
    const HeadLoss whole = in.Run(InChunks(100));
    const int threads = at::get_num_threads();
    for (const int64_t chunk : {1, 3, 4, 0}) {
      at::set_num_threads(chunk == 3 ? 3 : 1);
      const HeadLoss parts = in.Run(InChunks(chunk));
      at::set_num_threads(threads);
      ExpectSameBits(parts, whole);
      for (const DivergenceSums& sums : parts.sums) {
        EXPECT_EQ(sums.tokens, kTokens);
      }
    }
  }
}

// A teacher may name the students' head, hold a copy of it, or have a head that
// begins with its rows.
TEST_F(HeadLossTest, AHeadWithTheSameRowsChangesNoBit) {
  Inputs in;
  in.ids = at::randint(kVocabulary, {kTokens}, at::kLong);
  const HeadLoss expected = in.Run(InChunks(4));
  const HeadLoss by_tensors = in.RunByTensors(InChunks(4));
  const at::Tensor more = at::cat({in.head, at::randn({25, kHidden})});
  for (const at::Tensor& head : {in.head, in.head.clone(), more}) {
    Inputs with_heads = in;
    for (const size_t t : {0, 2}) with_heads.SetHead(t, head);
    const HeadLoss loss = with_heads.Run(InChunks(4));
    ExpectSameBits(loss, expected);
    EXPECT_TRUE(at::equal(loss.token_logprobs[0], expected.token_logprobs[0]));
    ExpectSameBits(with_heads.RunByTensors(InChunks(4)), by_tensors);
  }
}

TEST_F(HeadLossTest, StudentsAreOverTheTokensThatAllHeadsShare) {
  Inputs in;
  in.GiveHead(1, 40, 5);
  in.ids = at::randint(40, {kTokens}, at::kLong);
  const at::Tensor expected =
      at::log_softmax(at::linear(in.students[0], in.head).narrow(1, 0, 40), -1)
          .gather(1, in.ids.unsqueeze(1))
          .squeeze(1);
  for (const HeadLoss& loss :
       {in.Run(InChunks(4)), in.RunByTensors(InChunks(4))}) {
    EXPECT_LT(RelativeError(loss.token_logprobs[0], expected), 1e-5);
  }
  EXPECT_LT(RelativeError(TokenLogprobsOf(in.head,
                                          {.hidden = in.students[0]},
                                          in.ids,
                                          /*temperature=*/1.0,
                                          /*workspace=*/nullptr,
                                          /*vocabulary=*/40),
                          expected),
            1e-6);
  const at::Tensor of_teacher =
      at::log_softmax(at::linear(in.teachers[1].hidden, in.heads[1]->weight)
                          .narrow(1, 0, 38)
                          .div(kTemperature),
                      -1);
  in.ids = at::remainder(in.ids, 38);
  EXPECT_LT(RelativeError(
                TokenLogprobsOf(
                    in.head, in.teachers[1], in.ids, kTemperature, nullptr, 38),
                of_teacher.gather(1, in.ids.unsqueeze(1)).squeeze(1)),
            1e-6);
}

// Rows of a head behind V_c are never multiplied: their logits would not fit.
TEST_F(HeadLossTest, NoTensorIsLargerThanAChunkWhateverTheHeads) {
  Inputs in;
  in.GiveHead(0, 100 * kVocabulary, 12);
  in.GiveHead(2, 100 * kVocabulary, 5);
  const HeadLoss expected = in.Run(InChunks(100));
  const HeadLoss by_tensors = in.RunByTensors(InChunks(100));
  const HeadLossOptions options = InChunks(4);
  SmallMemory memory(static_cast<size_t>(options.chunk_bytes));
  const HeadLoss small = in.Run(options);
  const HeadLoss small_by_tensors = in.RunByTensors(options);
  EXPECT_EQ(memory.num_refused(), 0);
  ExpectSameBits(small, expected);
  for (size_t s = 0; s < in.students.size(); ++s) {
    EXPECT_LT(RelativeError(small_by_tensors.grad_hidden[s],
                            by_tensors.grad_hidden[s]),
              1e-5);
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

// Another model's logits are cut as its head is.
TEST_F(HeadLossTest, LogitsOfALargerVocabularyAreCut) {
  Inputs in;
  in.GiveHead(0, kVocabulary * 3 / 2, 12);
  const HeadLoss expected = in.Run(InChunks(4));
  Inputs as_logits = in;
  const at::Tensor logits =
      at::linear(in.teachers[0].hidden, in.heads[0]->weight);
  const at::Tensor before = logits.clone();
  for (const at::Tensor& given : {logits, logits.t().contiguous().t()}) {
    as_logits.teachers[0] = {.logits = given};
    for (const HeadLoss& loss :
         {as_logits.Run(InChunks(4)), as_logits.RunByTensors(InChunks(4))}) {
      EXPECT_NEAR(loss.sums[0].clipped, expected.sums[0].clipped, 1e-5);
      EXPECT_LT(RelativeError(loss.grad_hidden[0], expected.grad_hidden[0]),
                1e-5);
    }
  }
  EXPECT_TRUE(at::equal(logits, before));
  // Fewer columns than the students' head has rows cut the students.
  Inputs smaller = in;
  smaller.vocabulary = 40;
  as_logits.teachers[0] = {.logits = logits.narrow(1, 0, 40)};
  EXPECT_LT(RelativeError(as_logits.Run(InChunks(4)).grad_hidden[0],
                          smaller.Run(InChunks(4)).grad_hidden[0]),
            1e-5);
}

TEST_F(HeadLossTest, SizesThatDoNotFitAreErrorsThatNameThem) {
  const auto error_of = [](const Inputs& in) {
    const std::string error = ErrorOf([&] { in.Run(InChunks(4)); });
    EXPECT_EQ(ErrorOf([&] { in.RunByTensors(InChunks(4)); }), error);
    return error;
  };
  Inputs in;
  in.GiveHead(0, 75, 12);
  EXPECT_EQ(error_of(in), "none");
  Inputs wide = in;
  wide.teachers[0].hidden = at::randn({kTokens, 13});
  EXPECT_THAT(error_of(wide), testing::HasSubstr("have 13 numbers"));
  EXPECT_THAT(error_of(wide), testing::HasSubstr("its head takes 12"));
  Inputs many = in;
  many.vocabulary = kVocabulary + 1;
  EXPECT_THAT(error_of(many), testing::HasSubstr("51 tokens"));
  EXPECT_THAT(error_of(many), testing::HasSubstr("has 50 rows"));
  many.vocabulary = 40;
  many.GiveHead(1, 39, 4);
  EXPECT_THAT(error_of(many), testing::HasSubstr("head has 39"));
  many.teachers[1] = {.logits = at::randn({kTokens, 30})};
  EXPECT_THAT(error_of(many), testing::HasSubstr("logits have 30"));
  // The payload of the students' model, beside a smaller teacher; and the
  // payload of a larger model.
  const auto [top, ids] =
      at::log_softmax(at::randn({kTokens, 30}), -1).topk(3, -1);
  Inputs cut;
  cut.GiveHead(0, 40, 12);
  cut.teachers[1] = {.top_ids = ids, .top_logprobs = top};
  EXPECT_THAT(error_of(cut), testing::HasSubstr("its model's 50 tokens"));
  EXPECT_THAT(error_of(cut), testing::HasSubstr("teacher.payload: hidden"));
  Inputs larger = in;
  larger.teachers[0].hidden = at::Tensor();
  larger.teachers[0].top_ids = ids;
  larger.teachers[0].top_logprobs = top;
  EXPECT_THAT(error_of(larger), testing::HasSubstr("its model's 75 tokens"));
  EXPECT_THAT(ErrorOf([&] {
                TokenLogprobsOf(
                    in.head, larger.teachers[0], in.scored, 1.0, nullptr, 50);
              }),
              testing::HasSubstr("its model's 75 tokens"));
}

TEST_F(HeadLossTest, WithoutGradientOnlyTheSumsAreComputed) {
  const Inputs in;
  const HeadLoss loss = in.Run(InChunks(4), /*with_gradient=*/false);
  EXPECT_TRUE(loss.grad_hidden.empty());
  EXPECT_EQ(loss.sums[1].unclipped, in.Run(InChunks(4)).sums[1].unclipped);
}

}  // namespace
}  // namespace dapd
