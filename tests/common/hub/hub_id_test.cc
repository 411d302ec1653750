#include "common/hub/hub_id.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(HubIdTest, ANameAndItsRevisionAreTakenApart) {
  const auto id = ParseHubId("Qwen/Qwen3-4B@refs/pr/3");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->name, "Qwen/Qwen3-4B");
  EXPECT_EQ(id->revision, "refs/pr/3");
  EXPECT_EQ(id->ToString(), "Qwen/Qwen3-4B@refs/pr/3");
  const auto plain = ParseHubId("gpt2");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->RevisionOrMain(), "main");
  EXPECT_EQ(plain->ToString(), "gpt2");
}

TEST(HubIdTest, WhatTheHubCallsNothingIsRefused) {
  for (const char* text : {"",
                           "/models/Qwen3-4B",
                           "./Qwen3-4B",
                           "models/Qwen3-4B",
                           "datasets/gsm8k@main",
                           "a/b/c",
                           "a//b",
                           "a/b@",
                           "a/b@main@x",
                           "a--b/c",
                           "a/..",
                           "../b",
                           "a/b c",
                           "a/b@../../etc",
                           "a/b@/x",
                           "-a/b",
                           "a/b\n"}) {
    EXPECT_FALSE(ParseHubId(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseHubId(std::string(97, 'a')).has_value());
}

TEST(HubIdTest, TheCommandNamesKindAndRevision) {
  EXPECT_EQ(FetchCommand(HubKind::kModel, {"Qwen/Qwen3-4B", "main"}),
            "deploy/fetch.sh model Qwen/Qwen3-4B@main");
  EXPECT_EQ(FetchCommand(HubKind::kDataset, {"a/b", ""}),
            "deploy/fetch.sh data a/b");
}

}  // namespace
}  // namespace dapd
