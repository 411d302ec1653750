#include "common/data/file_pattern.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

TEST(FilePatternTest, PatternsMatchAsTheLibrarysDo) {
  struct Case {
    const char* pattern;
    const char* path;
    bool matches;
  };
  for (const Case& c : {Case{"a/*.jsonl", "a/b.jsonl", true},
                        Case{"a/*.jsonl", "a/b/c.jsonl", false},
                        Case{"*", "a/b", false},
                        Case{"**", "a/b", true},
                        Case{"a/**", "a/b/c", true},
                        Case{"a/**", "a", false},
                        Case{"**/b", "b", true},
                        Case{"**/b", "a/c/b", true},
                        Case{"a/**/b", "a/b", true},
                        Case{"a/?[0-9].x", "a/z7.x", true},
                        Case{"a/?[!0-9].x", "a/z7.x", false},
                        Case{"**", "a/.b/c", false},
                        Case{"**", ".c", false},
                        Case{"a/.b/*", "a/.b/c", true},
                        Case{"**", "__a/c", false},
                        Case{"__a/*", "__a/c", true},
                        Case{"*", "__c", true}}) {
    EXPECT_EQ(MatchesPattern(c.pattern, c.path), c.matches)
        << c.pattern << " " << c.path;
  }
}

TEST(FilePatternTest, APatternOfManyStarsTakesNoTime) {
  std::string pattern;
  std::string path;
  for (int i = 0; i < 500; ++i) {
    pattern += "**/a/";
    path += "a/";
  }
  EXPECT_FALSE(MatchesPattern(pattern + "c", path + "b"));
}

TEST(FilePatternTest, APatternStaysInItsFolder) {
  EXPECT_EQ(*NormalizePattern("./a//b/./*"), "a/b/*");
  for (const char* pattern : {"/a",
                              "../a",
                              "a/../../b",
                              "~/a",
                              "https://x.org/a",
                              "zip://a::b.zip"}) {
    EXPECT_THAT(std::string(NormalizePattern(pattern).status().message()),
                HasSubstr("leads out"))
        << pattern;
  }
  for (const char* pattern : {"", ".", "./", "a**", "a/**.jsonl"}) {
    EXPECT_FALSE(NormalizePattern(pattern).ok()) << pattern;
  }
}

}  // namespace
}  // namespace dapd
