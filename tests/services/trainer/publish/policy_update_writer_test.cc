#include "services/trainer/publish/policy_update_writer.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "services/trainer/publish/make_policy_update.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/simulated_stream.h"

namespace dapd {
namespace {

// Runs on the CPU, and with a device that the host simulates.
class PolicyUpdateWriterTest : public ::testing::TestWithParam<bool> {
 protected:
  PolicyUpdateWriterTest() {
    adapter_ = MakeFreshAdapter(
        weights_->config, {.rank = 4, .alpha = 8}, 7, at::kCPU);
    for (at::Tensor tensor : adapter_.Tensors()) tensor.normal_();
  }

  std::unique_ptr<PolicyUpdateWriter> Start() {
    return PolicyUpdateWriter::Start(adapter_,
                                     3,
                                     "attempt/3",
                                     probe_,
                                     DigestKind::kXxh3,
                                     GetParam() ? &side_ : nullptr)
        .value();
  }

  const std::shared_ptr<const ModelWeights> weights_ = MakeRandomModel("qwen3");
  const std::vector<int32_t> probe_ = {5, 6, 7};
  Adapter adapter_;
  SimulatedStream side_;
};

TEST_P(PolicyUpdateWriterTest, ItWritesWhatIsPackedAtOnceByteForByte) {
  const auto whole =
      MakePolicyUpdate(
          *weights_, &adapter_, 3, "attempt/3", probe_, DigestKind::kXxh3)
          .value();
  const auto writer = Start();
  for (const at::Tensor& tensor : adapter_.Tensors()) {
    ASSERT_TRUE(writer->Append(tensor).ok());
  }
  ASSERT_TRUE(writer->Finish(*weights_, adapter_).ok());
  const auto written = writer->update();
  EXPECT_TRUE(written->WaitUntilFinished().ok());
  EXPECT_EQ(written->version, whole->version);
  EXPECT_EQ(written->is_base, whole->is_base);
  EXPECT_EQ(written->adapter.config_json, whole->adapter.config_json);
  EXPECT_EQ(written->key, "attempt/3");
  EXPECT_EQ(written->key, whole->key);
  EXPECT_EQ(written->adapter.tensors, whole->adapter.tensors);
  EXPECT_EQ(written->adapter.digest, whole->adapter.digest);
  EXPECT_EQ(written->adapter.digest_kind, DigestKind::kXxh3);
  EXPECT_EQ(written->adapter.digest, AdapterDigest(whole->adapter));
  EXPECT_EQ(written->probe_logprobs, whole->probe_logprobs);
  EXPECT_EQ(written->probe_tolerance, whole->probe_tolerance);
}

TEST_P(PolicyUpdateWriterTest, WhoWaitsReadsEveryByteWhileItIsWritten) {
  const auto writer = Start();
  const auto update = writer->update();
  const absl::string_view bytes = update->adapter.tensors.view();
  std::string read;
  std::jthread reader([&] {
    while (read.size() < bytes.size()) {
      const auto part = bytes.substr(read.size(), 100);
      if (!update->WaitFor(read.size() + part.size()).ok()) return;
      read.append(part.data(), part.size());
    }
  });
  for (const at::Tensor& tensor : adapter_.Tensors()) {
    ASSERT_TRUE(writer->Append(tensor).ok());
  }
  reader.join();
  ASSERT_TRUE(writer->Finish(*weights_, adapter_).ok());
  EXPECT_EQ(read, SerializeAdapter(adapter_, "").value().tensors.view());
}

TEST_P(PolicyUpdateWriterTest, OneThatIsDroppedGivesItsUpdateUp) {
  auto writer = Start();
  const auto update = writer->update();
  ASSERT_TRUE(writer->Append(adapter_.Tensors()[0]).ok());
  writer.reset();
  EXPECT_EQ(update->WaitUntilFinished().code(), absl::StatusCode::kAborted);
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         PolicyUpdateWriterTest,
                         testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "simulated" : "cpu";
                         });

// One copy from one buffer begins after the weights are computed, and only the
// hasher waits for it.
TEST_P(PolicyUpdateWriterTest, ADevicesWeightsComeByOneCopy) {
  if (!GetParam()) GTEST_SKIP() << "the CPU has none";
  for (int step = 1; step <= 2; ++step) {
    const auto writer = Start();
    for (const at::Tensor& tensor : adapter_.Tensors()) {
      side_.Compute();  // the optimizer
      EXPECT_EQ(side_.counts().copies, step - 1) << "before the last tensor";
      ASSERT_TRUE(writer->Append(tensor).ok());
    }
    ASSERT_TRUE(writer->Finish(*weights_, adapter_).ok());
    EXPECT_EQ(side_.counts().buffers, step);
    EXPECT_EQ(side_.counts().copies, step);
    EXPECT_EQ(side_.counts().waits, step);
    EXPECT_EQ(side_.counts().held, side_.counts().computed);
  }
}

}  // namespace
}  // namespace dapd
