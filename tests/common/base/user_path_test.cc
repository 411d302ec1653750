#include "common/base/user_path.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::HasSubstr;

// Returns the expanded path, or the error's message.
std::string Expanded(std::string path) {
  const std::string before = path;
  const std::string wrong = ExpandUserPath(&path);
  if (wrong.empty()) return path;
  EXPECT_EQ(path, before);
  return wrong;
}

TEST(UserPathTest, ATildeStandsForTheHomeFolderAtTheBeginningAlone) {
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(Expanded("~"), "/home/ada");
  EXPECT_EQ(Expanded("~/"), "/home/ada/");
  EXPECT_EQ(Expanded("~/runs/a"), "/home/ada/runs/a");
  for (const char* same : {"",
                           "/x/~/y",
                           "x~",
                           "./~ada",
                           "s3://bucket/~/x",
                           "Qwen/Qwen3-4B@main"}) {
    EXPECT_EQ(Expanded(same), same);
  }
  ::unsetenv("HOME");
  EXPECT_THAT(Expanded("~/x"), HasSubstr("/x")) << "of the user database";
  EXPECT_NE(Expanded("~/x"), "~/x");
}

TEST(UserPathTest, WhatOnlyAShellReplacesIsRefused) {
  EXPECT_THAT(Expanded("~ada/runs"), HasSubstr("begins with ~ada; only ~"));
  EXPECT_THAT(Expanded("$HOME/runs"), HasSubstr("contains $HOME, which"));
  EXPECT_THAT(Expanded("/data/${USER}x"), HasSubstr("contains ${USER}, which"));
  EXPECT_THAT(Expanded("/data/$_x"), HasSubstr("contains $_x, which"));
  for (const char* same : {"/data/a$", "/data/5$/x", "/data/$5", "$"}) {
    EXPECT_EQ(Expanded(same), same) << "no variable has such a name";
  }
}

}  // namespace
}  // namespace dapd
