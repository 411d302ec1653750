#include "services/trainer/claim_meter.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/data/claim_openings.h"
#include "common/model/reference/token_logprobs.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/small_tokenizer.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

class ClaimMeterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = LoadSmallTokenizer();
    auto meter = ClaimMeter::Make(*tokenizer_);
    ASSERT_TRUE(meter.ok()) << meter.status();
    meter_.emplace(*std::move(meter));
  }

  std::vector<int32_t> Encode(const std::string& text) const {
    return tokenizer_->Encode(text).value();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<ClaimMeter> meter_;
};

// The probabilities of whole openings by a model without knowledge are so small
// that only their logarithms can be compared.
TEST_F(ClaimMeterTest, AnAnswersFigureIsTheMeanOverItsPlaces) {
  const auto weights = MakeRandomModel("qwen3", 1, at::kFloat, 300);
  Adapter live = MakeFreshAdapter(weights->config, {.rank = 2}, 7, at::kCPU);
  for (at::Tensor& tensor : live.Tensors()) tensor.add_(0.05);
  const std::vector<int32_t> prompt = Encode("<user>Why?<assistant>");
  const std::vector<int32_t> answer = Encode("So. the\nend");
  // Behind the newline and at the beginning no space is needed.
  const std::vector<std::pair<size_t, std::string>> places = {
      {0, ""}, {3, " "}, {5, ""}};
  EXPECT_THAT(meter_->PlacesOf(answer), ElementsAre(0, 3, 5));
  double sum = 0.0;
  for (const auto& [tokens, space] : places) {
    for (const std::string& text : ClaimTexts()) {
      std::vector<int32_t> ids = prompt;
      ids.insert(ids.end(),
                 answer.begin(),
                 answer.begin() + static_cast<std::ptrdiff_t>(tokens));
      const auto before = static_cast<int64_t>(ids.size());
      const std::vector<int32_t> opening = Encode(absl::StrCat(space, text));
      ids.insert(ids.end(), opening.begin(), opening.end());
      const at::Tensor logprobs = TokenLogprobs(*weights, &live, ids);
      sum += std::exp(
          logprobs.slice(0, before - 1).to(at::kDouble).sum().item<double>());
    }
  }
  const double expected = sum / static_cast<double>(places.size());
  ASSERT_GT(expected, 0.0);
  EXPECT_NEAR(std::log(meter_->Measure(*weights, live, prompt, answer)),
              std::log(expected),
              1e-4);
}

TEST_F(ClaimMeterTest, OfManyPlacesSomeCountFromTheFirstOn) {
  std::string text;
  for (int i = 0; i < 40; ++i) absl::StrAppend(&text, "A\n");
  const std::vector<int64_t> places = meter_->PlacesOf(Encode(text));
  ASSERT_EQ(places.size(), kMaxClaimPlaces);
  EXPECT_EQ(places.front(), 0);
  EXPECT_EQ(places[1], 4);
  EXPECT_GT(places.back(), 70);
}

TEST_F(ClaimMeterTest, TheLongestOpeningBeginsWithASpace) {
  size_t longest = 0;
  for (const std::string& text : ClaimTexts()) {
    longest = std::max(longest, Encode(absl::StrCat(" ", text)).size());
  }
  EXPECT_EQ(meter_->longest(), static_cast<int64_t>(longest));
}

}  // namespace
}  // namespace dapd
