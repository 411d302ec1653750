#include "common/data/grading/exact_number.h"

#include <cmath>
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

TEST(ExactNumberTest, TwosAreCountedInLowestTerms) {
  EXPECT_EQ(ExactNumber::Of(-12).PowerOfTwo(), 2);
  EXPECT_EQ(Decimal("0.2").PowerOfTwo(), 0);
  EXPECT_EQ(Decimal("0.4").PowerOfTwo(), 1);
  EXPECT_EQ(Decimal("0.625").PowerOfTwo(), -3);
}

TEST(ExactNumberTest, LargeNumbersAreToldFromTheirNeighbours) {
  const ExactNumber one = ExactNumber::Of(1);
  const ExactNumber large = ExactNumber::Of(5).Power(2023).value();
  EXPECT_FALSE(large == large.Plus(one).value());
  EXPECT_FALSE(one.Over(large) == one.Over(*large.Plus(one)));
  EXPECT_TRUE(large.Over(*large.Times(large)) == one.Over(large));
  EXPECT_TRUE(ExactNumber::FallingFactorial(2024, 2024) ==
              ExactNumber::FallingFactorial(2024, 1000)
                  ->Times(*ExactNumber::FallingFactorial(1024, 1024)));
  EXPECT_TRUE(ExactNumber::FallingFactorial(1000000007, 2) ==
              ExactNumber::Of(1000000007LL * 1000000006LL));
  EXPECT_TRUE(ExactNumber::FallingFactorial(5, 0) == one);
}

TEST(ExactNumberTest, OnlyOneHasPowersOfAnySize) {
  const ExactNumber minus_one = ExactNumber::Of(-1);
  EXPECT_TRUE(minus_one.Power(1LL << 60) == ExactNumber::Of(1));
  EXPECT_TRUE(minus_one.Power((1LL << 60) + 1) == minus_one);
  EXPECT_FALSE(ExactNumber::Of(2).Power(1LL << 60).has_value());
}

TEST(ExactNumberTest, FloatsHaveTheLeadingBits) {
  const ExactNumber third =
      ExactNumber::Of(1).Over(ExactNumber::Of(-3)).value();
  const ExactNumber large = ExactNumber::Of(10).Power(4900).value();
  for (const ExactNumber& number :
       {third, large.Times(third)->Over(large).value()}) {
    EXPECT_NEAR(static_cast<double>(number.ToFloat()), -1.0 / 3, 1e-15);
  }
  EXPECT_TRUE(std::isinf(ExactNumber::Of(10).Power(5000)->ToFloat()));
  EXPECT_EQ(ExactNumber::Of(0).ToFloat(), 0);
}

TEST(ExactNumberTest, WhatGrowsPastTheLimitIsNoNumber) {
  EXPECT_FALSE(ExactNumber::Of(1).Over(ExactNumber::Of(0)).has_value());
  EXPECT_FALSE(ExactNumber::Of(0).Power(-1).has_value());
  EXPECT_TRUE(ExactNumber::Of(2).Power(32000).has_value());
  EXPECT_FALSE(ExactNumber::Of(2).Power(40000).has_value());
  EXPECT_FALSE(ExactNumber::Of(10).Power(10000).has_value());
  EXPECT_FALSE(ExactNumber::FallingFactorial(4000, 4000).has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal(std::string(1001, '1')).has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("1.2.3").has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("").has_value());
  EXPECT_FALSE(ExactNumber::FromDecimal("1a").has_value());
}

}  // namespace
}  // namespace dapd
