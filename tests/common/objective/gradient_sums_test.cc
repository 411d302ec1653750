#include "common/objective/gradient_sums.h"

#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

using Gradient = std::vector<at::Tensor>;

std::vector<Gradient> RandomGradients(size_t count, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < count; ++i) {
    gradients.push_back(
        {at::randn({4, 6}, generator), at::randn({5, 4}, generator)});
  }
  return gradients;
}

double Dot(const Gradient& a, const Gradient& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] * b[i]).sum().item<double>();
  }
  return sum;
}

TEST(GradientSumsTest, AProblemEachGivesTheirDotProducts) {
  const std::vector<Gradient> first = RandomGradients(3, 1);
  const std::vector<Gradient> second = RandomGradients(3, 2);
  GradientSums sums(8);
  for (size_t i = 0; i < 3; ++i) sums.Add(first[i], second[i]);
  const GradientProducts products = sums.Products();
  EXPECT_EQ(products.problems, (std::vector<int64_t>{1, 1, 1}));
  ASSERT_EQ(products.cross.size(), 9u);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(products.first[3 * i + j], Dot(first[i], first[j]), 1e-5);
      EXPECT_NEAR(products.second[3 * i + j], Dot(second[i], second[j]), 1e-5);
      EXPECT_NEAR(products.cross[3 * i + j], Dot(first[i], second[j]), 1e-5);
    }
  }
}

TEST(GradientSumsTest, ProblemsShareSumsWhereThereAreFewer) {
  const std::vector<Gradient> first = RandomGradients(5, 1);
  const std::vector<Gradient> second = RandomGradients(5, 2);
  GradientSums sums(2);
  for (size_t i = 0; i < 5; ++i) sums.Add(first[i], second[i]);
  const GradientProducts products = sums.Products();
  EXPECT_EQ(products.problems, (std::vector<int64_t>{3, 2}));
  const auto expected = [&](const std::vector<size_t>& row,
                            const std::vector<size_t>& column) {
    double sum = 0.0;
    for (const size_t i : row) {
      for (const size_t j : column) sum += Dot(first[i], second[j]);
    }
    return sum;
  };
  const std::vector<size_t> even = {0, 2, 4};
  const std::vector<size_t> odd = {1, 3};
  EXPECT_NEAR(products.cross[0], expected(even, even), 1e-4);
  EXPECT_NEAR(products.cross[1], expected(even, odd), 1e-4);
  EXPECT_NEAR(products.cross[2], expected(odd, even), 1e-4);
  EXPECT_NEAR(products.cross[3], expected(odd, odd), 1e-4);
}

TEST(GradientSumsTest, WhatIsAddedMayChangeAfterwards) {
  Gradient gradient = RandomGradients(1, 1)[0];
  const double expected = Dot(gradient, gradient);
  GradientSums sums(1);
  sums.Add(gradient, gradient);
  for (at::Tensor& tensor : gradient) tensor.zero_();
  EXPECT_NEAR(sums.Products().cross[0], expected, 1e-5);
  EXPECT_TRUE(GradientSums(1).Products().problems.empty());
}

TEST(GradientSumsTest, ASumHoldsBothTermsGradientsInFloat32) {
  const Adapter adapter = MakeTrainedAdapter(MakeRandomModel("qwen3")->config);
  int64_t bytes = 0;
  for (const at::Tensor& tensor : adapter.Tensors()) bytes += tensor.nbytes();
  EXPECT_EQ(GradientSums::BytesOfSum(adapter), 2 * bytes);
}

}  // namespace
}  // namespace dapd
