// Tests that the simulated device finds errors: in kernels that are wrong on
// purpose, and in copies of the project's own kernels with a mistake that
// CMakeLists.txt plants.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/skinny_product.h"
#include "tests/fakes/cuda/device.h"
#include "tests/fakes/cuda/faulty_kernels.h"

namespace dapd {

// Copies of the launchers whose kernels have a mistake.
extern "C" {
decltype(DapdCudaResidualNorm) DapdCudaResidualNormWithoutBarrier;
decltype(DapdCudaResidualNorm) DapdCudaResidualNormWithoutWait;
decltype(DapdCudaSwiGlu) DapdCudaSwiGluOneTooFar;
decltype(DapdCudaSample) DapdCudaSampleWithHalfAMask;
}

namespace fake {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kSize = static_cast<size_t>(kFaultyThreads);

struct Outcome {
  int code;
  std::string report;
  std::vector<float> out;
};

Outcome RunOnce(Fault fault, uint32_t seed, unsigned blocks = 1) {
  DeviceBuffer<float> in("in", std::vector<float>(kSize, 1.0F));
  DeviceBuffer<float> out("out", Elements(kFaultyThreads));
  DeviceBuffer<float> unwritten("unwritten", Elements(kFaultyThreads));
  const float host = 1.0F;
  DeviceBuffer<unsigned> counter("counter", std::vector<unsigned>(1, 0U));
  SetSchedule(seed);
  const int code = RunFaulty({.fault = fault,
                              .in = in.data(),
                              .out = out.data(),
                              .unwritten = unwritten.data(),
                              .host = &host,
                              .counter = counter.data()},
                             blocks);
  return {code, TakeReport(), out.Read()};
}

// The expectation holds for any order of the threads.
template <typename Matcher>
void ExpectReport(Fault fault, const Matcher& matcher, unsigned blocks = 1) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Outcome outcome = RunOnce(fault, seed, blocks);
    EXPECT_NE(outcome.code, 0);
    EXPECT_THAT(outcome.report, matcher);
  }
}

TEST(FakeDeviceTest, AKernelComputesTheSameInAnyOrderOfItsThreads) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Outcome outcome = RunOnce(Fault::kNone, seed);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.report, IsEmpty());
    for (int i = 0; i < kFaultyThreads; ++i) {
      const int next = i % 32 == 31 ? i : i + 1;
      const int before = i % 16 == 0 ? i : i - 1;
      const int expected = (i + 1) % kFaultyThreads + next + i / 8 * 8 +
                           before + kFaultyThreads + kFaultyThreads / 2 + 2;
      EXPECT_EQ(outcome.out[static_cast<size_t>(i)], expected) << i;
    }
  }
}

TEST(FakeDeviceTest, AWarpsBarrierOrdersItsLanesAndNoOthers) {
  EXPECT_THAT(RunOnce(Fault::kOrderByWarp, 1).report, IsEmpty());
  ExpectReport(Fault::kOrderByWarpAcross, HasSubstr("without a barrier"));
}

TEST(FakeDeviceTest, AnAccessBesideABufferIsFound) {
  ExpectReport(
      Fault::kBehindTheEnd,
      AllOf(HasSubstr("thread 63: writes 4 bytes at byte 256 of 'out'"),
            HasSubstr("outside of every buffer")));
  ExpectReport(Fault::kBeforeTheBegin,
               AllOf(HasSubstr("thread 0: reads 4 bytes at"),
                     HasSubstr("outside of every buffer")));
  ExpectReport(Fault::kIndexOutsideOfAnArray,
               HasSubstr("an index outside of its array, at "));
  ExpectReport(Fault::kHostMemory, HasSubstr("not the device's memory"));
}

TEST(FakeDeviceTest, MemoryThatWasGivenBackIsNobodys) {
  float* gone = nullptr;
  DeviceBuffer<float> out("out", Elements(kFaultyThreads));
  { gone = DeviceBuffer<float>("gone", std::vector<float>(kSize)).data(); }
  EXPECT_NE(RunFaulty({.fault = Fault::kUnwrittenGlobal,
                       .out = out.data(),
                       .unwritten = gone},
                      1),
            0);
  EXPECT_THAT(TakeReport(), HasSubstr("outside of every buffer"));
}

TEST(FakeDeviceTest, ReadingWhatNobodyWroteIsFound) {
  ExpectReport(
      Fault::kUnwrittenShared,
      AllOf(HasSubstr("byte 20 of 'values'"), HasSubstr("nobody has written")));
  ExpectReport(Fault::kUnwrittenGlobal, HasSubstr("nobody has written"));
}

TEST(FakeDeviceTest, AWideLoadHasToBeAligned) {
  ExpectReport(
      Fault::kMisaligned,
      AllOf(HasSubstr("not aligned"), HasSubstr("faulty_kernels.cu:")));
}

TEST(FakeDeviceTest, RacesAreFoundInAnyOrder) {
  ExpectReport(Fault::kTwoWriters, HasSubstr("without a barrier"));
  ExpectReport(Fault::kAtomicAndPlain, HasSubstr("without a barrier"));
  EXPECT_THAT(RunOnce(Fault::kTwoBlocks, 1, 1).report, IsEmpty());
  ExpectReport(Fault::kTwoBlocks, HasSubstr("another block"), 2);
}

TEST(FakeDeviceTest, TheLastBlockSeesWhatTheOthersFenced) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Outcome outcome = RunOnce(Fault::kLastBlock, seed, 7);
    EXPECT_EQ(outcome.report, "");
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(outcome.out[i], 2.0F);
  }
  for (const Fault fault :
       {Fault::kLastBlockWithoutAFence, Fault::kSecondCountWithoutAFence}) {
    ExpectReport(fault, HasSubstr("as another block of this launch does"), 7);
  }
}

TEST(FakeDeviceTest, ABarrierThatNotAllReachIsFound) {
  ExpectReport(Fault::kEndsBeforeTheBarrier,
               AllOf(HasSubstr("thread 0 waits at the barrier"),
                     HasSubstr("thread 3 has ended")));
  ExpectReport(Fault::kTwoBarriers,
               AllOf(HasSubstr("thread 0 waits at the barrier"),
                     HasSubstr("thread 32 waits at the barrier")));
}

TEST(FakeDeviceTest, AShuffleWithoutItsLanesIsFound) {
  ExpectReport(Fault::kNotInItsMask,
               HasSubstr("is not in the mask 0x0000ffff"));
  ExpectReport(Fault::kLaneThatDoesNotCome,
               AllOf(HasSubstr("waits for the lanes 0xffffffff"),
                     HasSubstr("thread 8 has ended")));
  ExpectReport(Fault::kShuffleWithoutItsSource,
               HasSubstr("which is not in the mask 0x000000ff"));
}

TEST(FakeDeviceTest, AnIntegerThatOverflowsIsFound) {
  EXPECT_THAT(RunOnce(Fault::kOverflow, 1).report, IsEmpty());
  DeviceBuffer<float> in("in", std::vector<float>(kSize, 2.0F));
  DeviceBuffer<float> out("out", Elements(kFaultyThreads));
  EXPECT_NE(
      RunFaulty({.fault = Fault::kOverflow, .in = in.data(), .out = out.data()},
                1),
      0);
  EXPECT_THAT(TakeReport(), HasSubstr("an integer overflow at "));
}

std::string ReportOfCluster(Fault fault, uint32_t seed) {
  DeviceBuffer<float> out("out", Elements(kFaultyThreads));
  SetSchedule(seed);
  RunFaultyClusters({.fault = fault, .out = out.data()}, 4, 2);
  return TakeReport();
}

TEST(FakeDeviceTest, BlocksOfAClusterReachEachOtherByItsBarrier) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_THAT(ReportOfCluster(Fault::kClusterNone, seed),
                HasSubstr("another block"))
        << "both clusters write the same numbers";
    EXPECT_THAT(ReportOfCluster(Fault::kClusterWithoutBarrier, seed),
                ::testing::AnyOf(HasSubstr("another block"),
                                 HasSubstr("nobody has written")));
    EXPECT_THAT(ReportOfCluster(Fault::kClusterReadAndWritten, seed),
                HasSubstr("another block"));
    EXPECT_THAT(ReportOfCluster(Fault::kClusterBlockThatDoesNotCome, seed),
                HasSubstr("waits at the cluster's barrier"));
    EXPECT_THAT(ReportOfCluster(Fault::kClusterRankOutside, seed),
                HasSubstr("block 9 of a cluster of 2"));
  }
  DeviceBuffer<float> out("out", Elements(kFaultyThreads));
  const FaultyArgs args{.fault = Fault::kClusterNone, .out = out.data()};
  EXPECT_EQ(RunFaultyClusters(args, 2, 2), 0);
  EXPECT_THAT(TakeReport(), IsEmpty());
  EXPECT_EQ(out.Read(), std::vector<float>(kSize, 1.0F));
}

TEST(FakeDeviceTest, MessagesAreThereForWhoWaitsForThem) {
  using ::testing::AnyOf;
  const auto has = [](const char* text) { return HasSubstr(text); };
  const auto stuck = has("waits for the bytes of messages");
  const auto unread = has("where another block has not waited for one");
  const auto unwritten = has("nobody has written");
  for (uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_THAT(ReportOfCluster(Fault::kMessageNone, seed), IsEmpty());
    EXPECT_THAT(ReportOfCluster(Fault::kMessageNotWaitedFor, seed),
                AnyOf(unwritten, unread));
    EXPECT_THAT(ReportOfCluster(Fault::kMessageBeforeItsMemoryIsFree, seed),
                AnyOf(unread, has("as another block of this launch does")));
    EXPECT_THAT(ReportOfCluster(Fault::kMessageOfAnotherPhase, seed),
                AnyOf(unwritten, stuck));
    EXPECT_THAT(ReportOfCluster(Fault::kMessageThatIsNotExpected, seed), stuck);
    EXPECT_THAT(ReportOfCluster(Fault::kMessageToABlockThatHasEnded, seed),
                AnyOf(has("a block that has ended"),
                      stuck,
                      has("waits at the cluster's barrier")));
  }
}

TEST(FakeDeviceTest, ClustersThatTheDeviceDoesNotTakeAreRefused) {
  const FaultyArgs args{.fault = Fault::kClusterNone};
  EXPECT_NE(RunFaultyClusters(args, 3, 2), 0) << "no whole clusters";
  EXPECT_NE(RunFaultyClusters(args, 8, 8), 0) << "larger than the device's";
  SetTraits({.major = 8});
  EXPECT_NE(RunFaultyClusters(args, 2, 2), 0) << "a device without";
  SetTraits({});
  EXPECT_THAT(TakeReport(), IsEmpty());
}

TEST(FakeDeviceTest, ACopyIsThereForItsThreadOnceItWaited) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_THAT(RunOnce(Fault::kCopyNone, seed).report, IsEmpty());
    EXPECT_EQ(RunOnce(Fault::kCopyNone, seed).out,
              std::vector<float>(kSize, 1.0F));
  }
  ExpectReport(Fault::kCopyNotWaitedFor, HasSubstr("nobody has written"));
  ExpectReport(Fault::kCopyOfAnotherThread,
               ::testing::AnyOf(HasSubstr("without a barrier"),
                                HasSubstr("nobody has written")));
  ExpectReport(Fault::kCopyMisaligned, HasSubstr("not aligned"));
  ExpectReport(Fault::kCopyAtTheEnd, HasSubstr("under way"));
}

TEST(FakeDeviceTest, TrafficIsCounted) {
  TakeTraffic();
  RunOnce(Fault::kCopyNone, 1);
  const Traffic traffic = TakeTraffic();
  EXPECT_EQ(traffic.bytes_read, kSize * sizeof(float));
  EXPECT_EQ(traffic.bytes_written, kSize * sizeof(float));
}

TEST(FakeDeviceTest, LaunchesThatNoGpuTakesAreRefused) {
  EXPECT_NE(RunOnce(Fault::kNone, 1, 0).code, 0);
  ExpectReport(Fault::kTooMuchSharedMemory,
               HasSubstr("more shared memory than a block has"));
}

TEST(PlantedFaultTest, AMissingBarrierIsFound) {
  constexpr int64_t kHidden = 264;
  DeviceBuffer<float> x("x", std::vector<float>(kHidden, 1.0F));
  DeviceBuffer<float> weight("weight", std::vector<float>(kHidden, 1.0F));
  weight.MarkConstant();
  DeviceBuffer<float> out("out", Elements(kHidden));
  const ResidualNormArgs args{.num_rows = 1,
                              .x = x.data(),
                              .weight = weight.data(),
                              .out = out.data(),
                              .hidden = kHidden,
                              .out_stride = kHidden};
  EXPECT_EQ(DapdCudaResidualNorm(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_THAT(TakeReport(), IsEmpty());
  for (uint32_t seed = 0; seed < 5; ++seed) {
    SetSchedule(seed);
    EXPECT_NE(DapdCudaResidualNormWithoutBarrier(
                  &args, CudaNumber::kFloat32, nullptr),
              0);
    EXPECT_THAT(TakeReport(), HasSubstr("'warp_sums'"));
  }
}

TEST(PlantedFaultTest, AnEarlyLaunchThatLetsTheNextBeginUnwaitedIsFound) {
  constexpr int64_t kHidden = 264;
  DeviceBuffer<float> x("x", std::vector<float>(kHidden, 1.0F));
  DeviceBuffer<float> weight("weight", std::vector<float>(kHidden, 1.0F));
  weight.MarkConstant();
  DeviceBuffer<float> out("out", Elements(kHidden));
  const ResidualNormArgs args{.num_rows = 1,
                              .x = x.data(),
                              .weight = weight.data(),
                              .out = out.data(),
                              .hidden = kHidden,
                              .out_stride = kHidden};
  EXPECT_NE(
      DapdCudaResidualNormWithoutWait(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_THAT(TakeReport(),
              AllOf(HasSubstr("ResidualNorm"),
                    HasSubstr("lets the next launch begin before it waited")));
  // A kernel that is launched in turn has nothing to wait for.
  SetTraits({.major = 8});
  EXPECT_EQ(
      DapdCudaResidualNormWithoutWait(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_THAT(TakeReport(), IsEmpty());
  SetTraits({});
}

TEST(FakeDeviceTest, OnlyWhatIsConstantIsReadBeforeTheLaunchBefore) {
  constexpr int64_t kInner = 8;
  const std::vector<BFloat16> ones(kInner, FromFloat<BFloat16>(1.0F));
  DeviceBuffer<BFloat16> x("x", ones);
  DeviceBuffer<BFloat16> w("w", ones);
  DeviceBuffer<float> y("y", Elements(1));
  const CudaProduct product{.rows = 1,
                            .inner = kInner,
                            .cols = 1,
                            .x = x.data(),
                            .x_stride = kInner,
                            .w = w.data(),
                            .w_stride = kInner,
                            .y = y.data(),
                            .y_stride = 1,
                            .number = CudaNumber::kBFloat16,
                            .float_result = true};
  EXPECT_NE(DapdCudaSkinnyProduct(&product, nullptr), 0);
  EXPECT_THAT(TakeReport(),
              HasSubstr("reads memory before it waited for the launch before"));
  w.MarkConstant();
  EXPECT_EQ(DapdCudaSkinnyProduct(&product, nullptr), 0);
  EXPECT_THAT(TakeReport(), IsEmpty());
  EXPECT_EQ(y.Read().front(), kInner);
  y.MarkConstant();
  EXPECT_NE(DapdCudaSkinnyProduct(&product, nullptr), 0);
  EXPECT_THAT(TakeReport(),
              AllOf(HasSubstr("of 'y' [4]"), HasSubstr("which is constant")));
}

TEST(PlantedFaultTest, ABoundThatIsOneTooFarIsFound) {
  constexpr int64_t kIntermediate = 72;
  DeviceBuffer<float> gate_up("gate_up",
                              std::vector<float>(2 * kIntermediate, 1.0F));
  DeviceBuffer<float> out("out", Elements(kIntermediate));
  const SwiGluArgs args{.num_rows = 1,
                        .gate_up = gate_up.data(),
                        .out = out.data(),
                        .intermediate = kIntermediate,
                        .out_stride = kIntermediate};
  EXPECT_EQ(DapdCudaSwiGlu(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_THAT(TakeReport(), IsEmpty());
  EXPECT_NE(DapdCudaSwiGluOneTooFar(&args, CudaNumber::kFloat32, nullptr), 0);
  EXPECT_THAT(TakeReport(), HasSubstr("byte 576 of 'gate_up' [576]"));
}

TEST(PlantedFaultTest, AWrongShuffleMaskIsFound) {
  constexpr int64_t kVocab = 100;
  DeviceBuffer<float> logits("logits", std::vector<float>(kVocab, 1.0F));
  DeviceBuffer<int32_t> slot_of_row("slot_of_row", {0});
  DeviceBuffer<CudaSequence> sequences("sequences", {{.top_k = 5}});
  DeviceBuffer<char> scratch("scratch",
                             Elements(DapdCudaSampleScratch(1, kVocab)));
  const SampleArgs args{.num_rows = 1,
                        .slot_of_row = slot_of_row.data(),
                        .sequences = sequences.data(),
                        .logits = logits.data(),
                        .scratch = scratch.data(),
                        .vocab = kVocab,
                        .num_tokens = kVocab};
  EXPECT_NE(DapdCudaSampleWithHalfAMask(&args, nullptr), 0);
  EXPECT_THAT(TakeReport(),
              AllOf(HasSubstr("ReadSlices"),
                    HasSubstr("is not in the mask 0x0000ffff")));
}

}  // namespace
}  // namespace fake
}  // namespace dapd
