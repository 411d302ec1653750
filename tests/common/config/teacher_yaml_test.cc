#include "common/config/teacher_yaml.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::HasSubstr;

std::string Read(const std::string& text, size_t index, TeacherModel* teacher) {
  return ReadTeacher(YAML::Load(text), index, teacher);
}

TEST(TeacherYamlTest, NameAndPathAreEnough) {
  TeacherModel first;
  ASSERT_EQ(Read("{name: big, path: org/big}", 0, &first), "");
  EXPECT_EQ(first,
            (TeacherModel{.name = "big",
                          .path = "org/big",
                          .addresses = {"127.0.0.1:7011"},
                          .listen = "127.0.0.1:7011",
                          .metrics_listen = "127.0.0.1:9111"}));
  TeacherModel third;
  ASSERT_EQ(Read("{name: c, path: m, listen: '127.0.0.1:8000'}", 2, &third),
            "");
  EXPECT_EQ(third.addresses, std::vector<std::string>{"127.0.0.1:8000"});
  EXPECT_EQ(third.metrics_listen, "127.0.0.1:9113");
}

TEST(TeacherYamlTest, WhatIsWrittenIsReadAgainAtAnyPlace) {
  for (const char* text :
       {"{name: big, path: /models/big}",
        "{name: b-2_x, path: 'a \"b\"', adapter: org/lora, addresses: "
        "[h1:7, 'file:///tmp/list'], listen: '0.0.0.0:7', metrics_listen: '', "
        "workers: 3}"}) {
    TeacherModel teacher;
    ASSERT_EQ(Read(text, 1, &teacher), "") << text;
    TeacherModel again;
    const std::string written = FormatTeacher(teacher);
    ASSERT_EQ(Read(written, 5, &again), "") << written;
    EXPECT_EQ(again, teacher) << written;
  }
}

TEST(TeacherYamlTest, AMistakeIsNamedWithItsField) {
  const std::string good = "{name: a, path: m, ";
  for (const auto& [text, problem] :
       std::vector<std::pair<std::string, std::string>>{
           {"[1]", "is not a map"},
           {"big", "is not a map"},
           {"{path: m}", "name is missing"},
           {"{name: a}", "path is missing"},
           {"{name: a, path: ''}", "path is empty"},
           {"{name: a, path: [m]}", "path: is not a path"},
           {"{name: a, path: $HOME/m}", "path: "},
           {"{name: [a], path: m}", "name: is not a string"},
           {good + "weights: base}", "unknown key 'weights'"},
           {good + "addresses: {}}", "addresses: the list is empty"},
           {good + "addresses: []}", "addresses: the list is empty"},
           {good + "addresses: {a: 1}}", "addresses: is not a list"},
           {good + "addresses: [[1]]}", "addresses: is not a list"},
           {good + "addresses: [a:1, a:1]}", "'a:1' occurs twice"},
           {good + "workers: 0}", "workers: must be an integer from 1 to 256"},
           {good + "workers: many}", "workers: must be an integer"}}) {
    TeacherModel teacher;
    EXPECT_THAT(Read(text, 0, &teacher), HasSubstr(problem)) << text;
  }
}

}  // namespace
}  // namespace dapd
