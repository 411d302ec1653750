#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/model/weights/adapter.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

class AdapterFilesTest : public testing::Test {
 protected:
  const std::shared_ptr<const ModelWeights> weights_ = MakeRandomModel("qwen3");
  const Adapter adapter_ = MakeFrozenAdapter(weights_->config);
};

// A tensor that is copied by itself would have its own storage.
TEST_F(AdapterFilesTest, AReceivedAdapterGoesToItsDeviceByOneCopy) {
  const SerializedAdapter sent = SerializeAdapter(adapter_, "base").value();
  const Adapter received =
      ParseAdapter(sent, weights_->config, at::Device(at::kMeta)).value();
  const std::vector<at::Tensor> tensors = received.Tensors();
  const std::vector<at::Tensor> expected = adapter_.Tensors();
  ASSERT_EQ(tensors.size(), expected.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].sizes(), expected[i].sizes());
    EXPECT_TRUE(tensors[i].is_meta());
    EXPECT_TRUE(tensors[i].is_contiguous());
    EXPECT_TRUE(tensors[i].is_alias_of(tensors[0])) << i;
  }
}

TEST_F(AdapterFilesTest, OnTheCpuItSharesTheMemoryThatItCameIn) {
  const SerializedAdapter sent = SerializeAdapter(adapter_, "base").value();
  const Adapter received =
      ParseAdapter(sent, weights_->config, at::kCPU).value();
  const std::vector<at::Tensor> tensors = received.Tensors();
  const std::vector<at::Tensor> expected = adapter_.Tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(tensors[i], expected[i])) << i;
  }
  const auto* first = static_cast<const char*>(tensors[0].const_data_ptr());
  EXPECT_GE(first, sent.tensors.data());
  EXPECT_LT(first, sent.tensors.data() + sent.tensors.size());
}

TEST_F(AdapterFilesTest, FlatIsTheOrderOfTheWireForm) {
  const SerializedAdapter sent = SerializeAdapter(adapter_, "base").value();
  const at::Tensor flat = Flat(adapter_);
  const std::string bytes(static_cast<const char*>(flat.const_data_ptr()),
                          flat.nbytes());
  EXPECT_TRUE(absl::EndsWith(sent.tensors.view(), bytes));
}

}  // namespace
}  // namespace dapd
