// Tests ranks that decode together (tests/fakes/cuda_decode_ranks.h) when one
// rank fails or ends: what the other ranks do, and what they then ask of their
// devices.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "common/base/status_error.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "tests/fakes/cuda_decode_api_on_host.h"
#include "tests/fakes/cuda_decode_ranks.h"
#include "tests/fakes/cuda_on_host.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/nccl_ranks.h"

namespace dapd {
namespace {

using OnRank = std::function<void(Collective& collective,
                                  SimulatedGroup& group,
                                  std::unique_ptr<CudaDecodeBackend> backend)>;

// Calls `body` on each of two ranks whose answers do not end early.
void RunTwoRanks(const CudaDecodeApi& api,
                 const OnRank& body,
                 double timeout_seconds = 60) {
  RunRanks(2, *EndlessShareable(104), {.slots = 2}, api, body, timeout_seconds);
}

int CollectFromLostRanks(void*, CudaDecodedToken*, int64_t*, char* error) {
  std::snprintf(error, kCudaErrorBytes, "a rank did not join in time");
  return kCudaRanksLost;
}

int StartWithBrokenDevice(
    void*, const CudaPrompt*, int64_t, const float*, char* error) {
  std::snprintf(error, kCudaErrorBytes, "start: an illegal access");
  return 1;
}

TEST(CudaTensorParallelTest, WhatFailsOnARankEndsWhatTheRanksDoTogether) {
  CudaDecodeApi lost = CudaDecodeApiOnHost();
  lost.collect = CollectFromLostRanks;
  CudaDecodeApi broken = CudaDecodeApiOnHost();
  broken.start = StartWithBrokenDevice;
  for (const CudaDecodeApi& api : {lost, broken}) {
    RunTwoRanks(api,
                [&](Collective&,
                    SimulatedGroup& group,
                    std::unique_ptr<CudaDecodeBackend> backend) {
                  ASSERT_TRUE(backend->Start(0, MakeRequest(20, 100, 1)));
                  ASSERT_TRUE(backend->Start(1, MakeRequest(20, 100, 2)));
                  try {
                    backend->Step();
                    FAIL() << "nobody heard of it";
                  } catch (const StatusError& error) {
                    EXPECT_TRUE(absl::IsAborted(error.status()))
                        << error.status();
                  }
                  EXPECT_TRUE(group.is_aborted());
                });
  }
}

thread_local int64_t num_stops = 0;

int CountStop(void* decoder, int64_t slot, char* error) {
  ++num_stops;
  return DapdCudaDecoderStop(decoder, slot, error);
}

// Its communicator is gone, and even a wait would ask the communicator.
TEST(CudaTensorParallelTest, NothingIsAskedOfADecoderWhoseRanksAreLost) {
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.collect = CollectFromLostRanks;
  api.stop = CountStop;
  RunTwoRanks(api,
              [&](Collective&,
                  SimulatedGroup& group,
                  std::unique_ptr<CudaDecodeBackend> backend) {
                num_stops = 0;
                EXPECT_THROW(backend->ScoreTokens({1, 2, 3}), StatusError);
                EXPECT_TRUE(group.is_aborted());
                backend.reset();
                EXPECT_EQ(num_stops, 0);
              });
}

// Rank 1 ends after three steps with rank 0; `body` is what rank 0 does then.
// `is_noticed` says whether NCCL notices the end.
void OutliveRankOne(
    bool is_noticed,
    double timeout_seconds,
    const std::function<void(SimulatedGroup& group,
                             std::unique_ptr<CudaDecodeBackend> backend)>& body,
    const CudaDecodeApi& api = CudaDecodeApiOnHost()) {
  RunTwoRanks(
      api,
      [&](Collective& collective,
          SimulatedGroup& group,
          std::unique_ptr<CudaDecodeBackend> backend) {
        ASSERT_TRUE(backend->Start(0, MakeRequest(20, 100, 1)));
        ASSERT_TRUE(backend->Reserve(0, 120));
        for (int i = 0; i < 3; ++i) backend->Step();
        if (collective.rank() == 1) {
          EndNcclRank(group.nccl().communicator, is_noticed);
        } else {
          body(group, std::move(backend));
        }
      },
      timeout_seconds);
}

// The other ranks' graphs would wait for its part for ever. The host ends the
// wait, by its time-out or because NCCL has noticed.
TEST(CudaTensorParallelTest, ARankThatEndsLeavesNoOtherInItsGraph) {
  struct Case {
    bool is_noticed;
    double timeout_seconds;
    std::string why;
  };
  for (const Case& each : {Case{false, 2, "did not join in time"},
                           Case{true, 60, "an NCCL error"}}) {
    OutliveRankOne(
        each.is_noticed,
        each.timeout_seconds,
        [&](SimulatedGroup& group, std::unique_ptr<CudaDecodeBackend> backend) {
          try {
            for (int i = 0; i < 3; ++i) backend->Step();
            FAIL() << "nobody heard of it";
          } catch (const StatusError& error) {
            EXPECT_TRUE(absl::IsAborted(error.status())) << error.status();
            EXPECT_NE(error.status().message().find(each.why),
                      std::string::npos)
                << error.status();
          }
          EXPECT_TRUE(group.is_aborted());
          EXPECT_FALSE(CudaHostIsStuck());
        });
  }
}

// The other ranks may do anything next while their device waits for its part.
TEST(CudaTensorParallelTest, ARankThatEndsLetsTheOthersScoreAndEnd) {
  for (const bool scores : {true, false}) {
    OutliveRankOne(
        /*is_noticed=*/false,
        /*timeout_seconds=*/2,
        [&](SimulatedGroup& group, std::unique_ptr<CudaDecodeBackend> backend) {
          backend->Step();  // reads the earlier steps, then launches its own
          EXPECT_TRUE(CudaHostIsStuck());
          if (scores) {
            EXPECT_THROW(backend->ScoreTokens({1, 2, 3}), StatusError);
            EXPECT_TRUE(group.is_aborted());
          }
          backend.reset();
          EXPECT_TRUE(group.is_aborted());
          EXPECT_FALSE(CudaHostIsStuck());
        });
  }
}

// Its first step waits for the other ranks, as every later step does.
TEST(CudaTensorParallelTest, ARankThatEndsLeavesNoOtherInItsNewDecoder) {
  const auto whole = EndlessShareable(104);
  RunThreadRanks(2, [&](Collective& collective) {
    const auto group =
        std::make_shared<SimulatedGroup>(collective, /*timeout_seconds=*/2);
    if (collective.rank() == 1) {
      EndNcclRank(group->nccl().communicator, /*is_noticed=*/false);
      return;
    }
    const auto share = ShardModel(*whole, {0, 2});
    try {
      const CudaDecodeBackend backend(
          CudaWeightsOfRank(*share),
          {.slots = 2},
          CudaDecodeApiOnHost(),
          CudaDecodeRanks{whole->config, share->layout, group, &collective});
      FAIL() << "nobody heard of it";
    } catch (const StatusError& error) {
      EXPECT_TRUE(absl::IsAborted(error.status())) << error.status();
    }
    EXPECT_TRUE(group->is_aborted());
    EXPECT_FALSE(CudaHostIsStuck());
  });
}

thread_local bool logits_are_finite = true;

int CollectUnlessNotFinite(void* decoder,
                           CudaDecodedToken* tokens,
                           int64_t* num_tokens,
                           char* error) {
  if (logits_are_finite) {
    return DapdCudaDecoderCollect(decoder, tokens, num_tokens, error);
  }
  tokens[0] = {.slot = 0, .sampled = {.token = -1}};
  *num_tokens = 1;
  return 0;
}

// After such an error torch_bridge.h asks the device whether it works, which
// waits for all of its work.
TEST(CudaTensorParallelTest, NoRankIsInAGraphWhenLogitsAreNotFinite) {
  CudaDecodeApi api = CudaDecodeApiOnHost();
  api.collect = CollectUnlessNotFinite;
  OutliveRankOne(
      /*is_noticed=*/false,
      /*timeout_seconds=*/2,
      [](SimulatedGroup& group, std::unique_ptr<CudaDecodeBackend> backend) {
        backend->Step();
        EXPECT_TRUE(CudaHostIsStuck());
        logits_are_finite = false;
        EXPECT_THROW(backend->Step(), c10::Error);
        EXPECT_TRUE(group.is_aborted());
        EXPECT_FALSE(CudaHostIsStuck());
      },
      api);
}

}  // namespace
}  // namespace dapd
