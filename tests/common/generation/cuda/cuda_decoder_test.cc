// Tests the CUDA decoder's graphs on a host that simulates the device
// (tests/fakes/cuda_on_host.cc), and that no step leaves the memory of its
// sequence.

#include "common/generation/cuda/cuda_decoder.h"

#include <cstring>
#include <map>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/decode_attention_math.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"

namespace dapd {
namespace {

TEST(CudaDecoderTest, NoStepIsLaunchedPastTheLastPage) {
  CudaDecodeBackend backend(
      *EndlessModel(), {.slots = 1}, CudaDecodeApiOnHost());
  ASSERT_TRUE(backend.Start(0, MakeRequest(100, 200, 1)));
  EXPECT_THROW(
      {
        for (int i = 0; i < 10; ++i) backend.Step();
      },
      c10::Error);
}

TEST(CudaDecoderTest, AGraphIsAsLongAsWhatIsThere) {
  const int64_t first = 1000;
  CudaDecodeBackend backend(*LongModel(), {.slots = 2}, CudaDecodeApiOnHost());
  ASSERT_TRUE(backend.Start(0, MakeRequest(first, 3000, 1)));
  ASSERT_TRUE(backend.Reserve(0, first + 3000));
  int64_t tokens = 0;
  std::map<int64_t, int64_t> tokens_of_graph;
  while (tokens < 1100) {
    const auto step = static_cast<int64_t>(backend.Step().size());
    tokens += step;
    tokens_of_graph[WorkOfCudaHost().attended_tokens] += step;
  }
  // Graphs are for 1,024 tokens and its doublings, though the request may take
  // 4,000.
  ASSERT_EQ(tokens_of_graph.size(), 3U);
  EXPECT_TRUE(tokens_of_graph.contains(1024));
  EXPECT_GT(tokens_of_graph[2048], 900);
  EXPECT_TRUE(tokens_of_graph.contains(4096));
}

// Makes the decoder believe that a prompt ends 20 tokens before the longest
// context; memory that the prefill did not write is zero.
int StartAtTheEnd(void* decoder,
                  const CudaPrompt* prompts,
                  int64_t num_prompts,
                  const float* logits,
                  char* error) {
  CudaPrompt prompt = prompts[0];
  // A page has keys and values of two heads in two layers, in float32.
  const int64_t page_bytes = kPageTokens * 2 * 2 * 2 * 16 * 4;
  for (int64_t page = 1; page < prompt.pages.num_pages; ++page) {
    std::memset(prompt.pages.pages[page], 0, page_bytes);
  }
  prompt.num_tokens = 40'940;
  return DapdCudaDecoderStart(decoder, &prompt, num_prompts, logits, error);
}

TEST(CudaDecoderTest, TheLongestContextIsDecodedToItsEnd) {
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.start = StartAtTheEnd;
  CudaDecodeBackend backend(*LongModel(), {.slots = 1}, api);
  EXPECT_LT(backend.KvBytes(40'960), DecodeBackend::kTooLong);
  EXPECT_EQ(backend.KvBytes(40'961), DecodeBackend::kTooLong);
  ASSERT_TRUE(backend.Start(0, MakeRequest(kPageTokens, 20, 1)));
  ASSERT_TRUE(backend.Reserve(0, 40'960));
  size_t tokens = 0;
  for (int step = 0; step < 10 && tokens < 20; ++step) {
    tokens += backend.Step().size();
  }
  EXPECT_EQ(tokens, 20U);
  // The graph is for the longest context, not for the next doubling of 1,024.
  EXPECT_EQ(WorkOfCudaHost().attended_tokens, 40'960);
}

TEST(CudaDecoderTest, TokensAreTheSameWhereGraphsGrow) {
  const auto run = [](int64_t prompt) {
    CudaDecodeBackend backend(
        *LongModel(), {.slots = 2}, CudaDecodeApiOnHost());
    // The second sequence makes the graphs grow for the first sequence, too.
    EXPECT_TRUE(backend.Start(0, MakeRequest(30, 60, 1)));
    EXPECT_TRUE(backend.Start(1, MakeRequest(prompt, 60, 2)));
    EXPECT_TRUE(backend.Reserve(0, 90));
    EXPECT_TRUE(backend.Reserve(1, prompt + 60));
    std::vector<int32_t> tokens;
    for (size_t all = 0; all < 120;) {
      for (const DecodedToken& token : backend.Step()) {
        ++all;
        if (token.slot == 0) tokens.push_back(token.token);
      }
    }
    return tokens;
  };
  const std::vector<int32_t> expected = run(40);
  EXPECT_EQ(expected.size(), 60U);
  EXPECT_EQ(run(1000), expected);
  EXPECT_EQ(run(2030), expected);
}

// Counts launches by the number of rows of their graph.
std::map<int64_t, int64_t> launches_by_rows;

int LaunchAndCount(void* decoder, int64_t steps, char* error) {
  const int code = DapdCudaDecoderLaunch(decoder, steps, error);
  ++launches_by_rows[WorkOfCudaHost().attended_rows];
  return code;
}

TEST(CudaDecoderTest, AStepHasAsFewRowsAsKeepASequencesBits) {
  // The 20 answers end one after the other.
  std::vector<DecodeRequest> requests;
  for (uint32_t i = 0; i < 20; ++i) {
    requests.push_back(MakeRequest(20 + i, 8 * (i + 1), i));
  }
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.launch = LaunchAndCount;
  const auto run = [&](at::ScalarType dtype, int64_t slots) {
    CudaDecodeBackend backend(*EndlessModel(dtype), {.slots = slots}, api);
    launches_by_rows.clear();
    return Generate(backend, requests);
  };
  const auto alone = run(at::kBFloat16, 1);
  EXPECT_EQ(launches_by_rows.size(), 1U);
  EXPECT_TRUE(launches_by_rows.contains(1));
  for (const auto& [request, answer] : run(at::kBFloat16, 32)) {
    EXPECT_EQ(answer.tokens, alone.at(request).tokens);
    EXPECT_EQ(answer.logprobs, alone.at(request).logprobs);
  }
  EXPECT_EQ(launches_by_rows.size(), 3U);
  for (const int64_t rows : {8, 16, 32}) EXPECT_GT(launches_by_rows[rows], 5);
  // cuBLASLt computes the products of this model.
  run(at::kFloat, 32);
  EXPECT_EQ(launches_by_rows.size(), 1U);
  EXPECT_TRUE(launches_by_rows.contains(32));
}

// Counts the library products of a step, which runs once and is then captured.
int64_t LibraryProducts(at::ScalarType dtype, int64_t slots) {
  const auto weights = MakeDecodableModel("qwen3", dtype);
  WorkOfCudaHost() = {};
  const CudaDecodeBackend backend(
      *weights, {.slots = slots}, CudaDecodeApiOnHost());
  EXPECT_EQ(WorkOfCudaHost().captures, 1);
  return WorkOfCudaHost().library_products / 2;
}

TEST(CudaDecoderTest, FewRowsInBFloat16AskNothingOfCublas) {
  const int64_t layers = MakeDecodableModel("qwen3")->config.num_layers;
  const int64_t all = 4 * layers + 1;
  EXPECT_EQ(LibraryProducts(at::kBFloat16, 1), 0);
  EXPECT_EQ(LibraryProducts(at::kBFloat16, 32), 0);
  EXPECT_EQ(LibraryProducts(at::kBFloat16, 33), all);
  EXPECT_EQ(LibraryProducts(at::kFloat, 1), all);
}

// Only the head among this model's products has enough columns.
TEST(CudaDecoderTest, ProductsTakeTheBulkFormOnlyIfAskedTo) {
  const auto weights = WideHeadModel(kLeastBulkCols + 8, at::kBFloat16);
  const std::vector<DecodeRequest> requests = MakeRequests();
  std::map<size_t, std::vector<int32_t>> tokens;
  for (const bool bulk_products : {false, true}) {
    WorkOfCudaHost() = {};
    CudaDecodeBackend backend(*weights,
                              {.slots = 4, .bulk_products = bulk_products},
                              CudaDecodeApiOnHost());
    // A step runs once and is then captured.
    EXPECT_EQ(WorkOfCudaHost().bulk_products, bulk_products ? 2 : 0);
    for (const auto& [request, answer] : Generate(backend, requests)) {
      const auto [found, is_new] = tokens.emplace(request, answer.tokens);
      EXPECT_EQ(found->second, answer.tokens);
    }
  }
}

TEST(CudaDecoderTest, AStepIsOneGraphAndATokenIsNoWaitOfItsOwn) {
  const auto weights = EndlessModel();
  CudaDecodeBackend backend(*weights, {.slots = 4}, CudaDecodeApiOnHost());
  // A graph calls launchers: nine for each layer and four around the layers.
  EXPECT_EQ(WorkOfCudaHost().graph_nodes, 9 * weights->config.num_layers + 4);
  for (int64_t slot = 0; slot < 4; ++slot) {
    ASSERT_TRUE(backend.Start(slot, MakeRequest(20, 100, slot)));
    ASSERT_TRUE(backend.Reserve(slot, 120));
  }
  WorkOfCudaHost() = {};
  std::vector<DecodedToken> first = backend.Step();
  // Four prompts get their first tokens by one launch and one wait.
  EXPECT_EQ(WorkOfCudaHost().launches, 1);
  EXPECT_LE(WorkOfCudaHost().waits, 2);
  WorkOfCudaHost() = {};
  size_t tokens = 0;
  for (int i = 0; i < 10; ++i) tokens += backend.Step().size();
  EXPECT_EQ(tokens, 10U * 4 * 4);
  // Four steps share a wait and a copy, whatever the number of sequences is.
  EXPECT_EQ(WorkOfCudaHost().graph_launches, 40);
  EXPECT_EQ(WorkOfCudaHost().waits, 10);
  EXPECT_EQ(WorkOfCudaHost().copies, 10);
  EXPECT_EQ(WorkOfCudaHost().launches, 0);
}

}  // namespace
}  // namespace dapd
