#include "common/base/enum_names.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {

// The enum is in this namespace because its table is looked up there.
enum class Fruit { kApple, kSourCherry };
constexpr auto NameTable(Fruit) { return std::array{"apple", "sour_cherry"}; }

namespace {

TEST(EnumNamesTest, EveryValueHasItsNameAndIsReadByIt) {
  EXPECT_STREQ(NameOf(Fruit::kApple), "apple");
  EXPECT_STREQ(NameOf(Fruit::kSourCherry), "sour_cherry");
  EXPECT_EQ(ParseName<Fruit>("apple"), Fruit::kApple);
  EXPECT_EQ(ParseName<Fruit>("sour_cherry"), Fruit::kSourCherry);
  EXPECT_THAT(NamesOf<Fruit>(), testing::ElementsAre("apple", "sour_cherry"));
  EXPECT_EQ(JoinedNames<Fruit>(), "apple, sour_cherry");
}

TEST(EnumNamesTest, AnUnknownNameIsNoValue) {
  for (const char* name : {"", "Apple", "apple ", "sour"}) {
    EXPECT_EQ(ParseName<Fruit>(name), std::nullopt) << name;
  }
}

TEST(EnumNamesTest, AVariableIsSetByNameOrStaysAsItIs) {
  Fruit fruit = Fruit::kApple;
  const EnumVariable variable(&fruit);
  EXPECT_STREQ(variable.Name(), "apple");
  EXPECT_TRUE(variable.Set("sour_cherry"));
  EXPECT_EQ(fruit, Fruit::kSourCherry);
  EXPECT_FALSE(variable.Set("pear"));
  EXPECT_STREQ(variable.Name(), "sour_cherry");
  EXPECT_EQ(variable.names(), NamesOf<Fruit>());
}

}  // namespace
}  // namespace dapd
