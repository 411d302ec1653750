#include "common/data/grading/exact_number.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

ExactNumber Decimal(const std::string& text) {
  return ExactNumber::FromDecimal(text).value();
}

TEST(ExactNumberTest, ArithmeticIsThatOfRationals) {
  const ExactNumber third = ExactNumber::Of(1).Over(ExactNumber::Of(3)).value();
  EXPECT_TRUE(third.Plus(third)->Plus(third) == ExactNumber::Of(1));
  EXPECT_TRUE(third.Negated().Times(ExactNumber::Of(-6)) == ExactNumber::Of(2));
  EXPECT_TRUE(Decimal("1.25") == ExactNumber::Of(5).Over(ExactNumber::Of(4)));
  EXPECT_TRUE(Decimal(".5") == Decimal("0.50"));
  EXPECT_FALSE(third == Decimal("0.3333333333333333333"));
  EXPECT_TRUE(ExactNumber::Of(2).Power(-3) == Decimal("0.125"));
  EXPECT_TRUE(ExactNumber::Of(-2).Power(3) == ExactNumber::Of(-8));
  EXPECT_TRUE(ExactNumber::Of(0).Negated() == ExactNumber::Of(0));
}

TEST(ExactNumberTest, IntegersAreRecognisedInAnyTerms) {
  const ExactNumber four =
      ExactNumber::Of(12).Over(ExactNumber::Of(-3)).value();
  EXPECT_TRUE(four.is_integer());
  EXPECT_EQ(four.ToInteger(), -4);
  EXPECT_EQ(Decimal("0.5").ToInteger(), std::nullopt);
  EXPECT_NEAR(static_cast<double>(Decimal("0.5").ToFloat()), 0.5, 1e-15);
}

TEST(ExactNumberTest, WhatGrowsPastTheLimitIsNoNumber) {
  EXPECT_FALSE(ExactNumber::Of(1).Over(ExactNumber::Of(0)).has_value());
  EXPECT_FALSE(ExactNumber::Of(0).Power(-1).has_value());
  EXPECT_TRUE(ExactNumber::Of(2).Power(4000).has_value());
  EXPECT_FALSE(ExactNumber::Of(2).Power(5000).has_value());
  EXPECT_FALSE(ExactNumber::Of(10).Power(4000).has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal(std::string(1001, '1')).has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("1.2.3").has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("").has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("1a").has_value());
}

}  // namespace
}  // namespace dapd
