#include "common/base/json.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

using nlohmann::json;

TEST(JsonTest, NumbersAreReadAsTheyStand) {
  EXPECT_EQ(json::parse("-7").get<int32_t>(), -7);
  EXPECT_EQ(json::parse("18446744073709551615").get<uint64_t>(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json::parse("3").get<double>(), 3.0);
  EXPECT_EQ(json::parse("2.5").get<float>(), 2.5f);
  EXPECT_EQ(json::parse("[1,2]").get<std::vector<int32_t>>(),
            (std::vector<int32_t>{1, 2}));
  const int64_t implicit = nlohmann::ordered_json{{"step", 5}}.at("step");
  EXPECT_EQ(implicit, 5);
  EXPECT_EQ(json(std::vector<float>{0.5f}).dump(), "[0.5]");
  EXPECT_TRUE(json(true).get<bool>());
}

// nlohmann itself would turn each of these texts into some number.
TEST(JsonTest, WhatIsNoSuchNumberIsNeverConverted) {
  for (const char* text : {"true",
                           "1.5",
                           "1.0",
                           "4.1e+29",
                           "4294967297",
                           "18446744073709551615"}) {
    const json value = json::parse(text);
    EXPECT_THROW(value.get<int32_t>(), json::type_error) << text;
    EXPECT_THROW(json::array({1, value}).get<std::vector<int32_t>>(),
                 json::type_error)
        << text;
    EXPECT_THROW([[maybe_unused]] const int32_t id = value, json::type_error)
        << text;
    EXPECT_THROW((json{{"id", value}}.value("id", 0)), json::type_error)
        << text;
  }
  EXPECT_THROW(json(-1).get<uint32_t>(), json::type_error);
  EXPECT_THROW(json(-1).get<uint64_t>(), json::type_error);
  EXPECT_THROW(json(true).get<double>(), json::type_error);
  EXPECT_THROW(json("1").get<double>(), json::type_error);
}

// Files get nlohmann::json only by the header that forbids conversions.
TEST(JsonTest, NoOtherFileIncludesTheLibrary) {
  const std::filesystem::path root = DAPD_SOURCE_DIR;
  int num_users = 0;
  for (const char* folder : {"common", "services", "tests"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      std::ifstream file(path);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (const char* include :
           {"#include <nlohmann/json.hpp>", "#include \"nlohmann/json.hpp\""}) {
        const bool is_ours = path == root / "common/base/json.h" ||
                             path == root / "tests/common/base/json_test.cc";
        EXPECT_TRUE(is_ours || text.find(include) == std::string::npos)
            << path << " has to include common/base/json.h instead";
      }
      num_users += text.find("\"common/base/json.h\"") != std::string::npos;
    }
  }
  EXPECT_GT(num_users, 20);
}

}  // namespace
}  // namespace dapd
