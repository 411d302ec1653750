#include "common/data/data_splits.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/data/data_card.h"
#include "common/data/file_pattern.h"

namespace dapd {
namespace {

using Paths = std::vector<std::string>;

constexpr char kHeldOutSplit[] = "held_out";
constexpr char kShards[] =
    "data/*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";

// These files describe other files. A pattern matches them only if it names
// them.
constexpr const char* kNoRows[] = {"config.json",
                                   "dataset_info.json",
                                   "dataset_infos.json",
                                   "dataset_dict.json"};

struct SplitWords {
  const char* split;
  std::vector<std::string> words;
};

const std::vector<SplitWords>& Conventions() {
  static const auto& conventions = *new std::vector<SplitWords>{
      {kTrainSplit, {"train", "training"}},
      {"validation", {"validation", "valid", "dev", "val"}},
      {"test", {"test", "testing", "eval", "evaluation"}}};
  return conventions;
}

// WORD stands for a word of a convention.
const Paths& FolderPatterns() {
  static const auto& patterns = *new Paths{"**/WORD/**",
                                           "**/WORD[-._ 0-9]*/**",
                                           "**/*[-._ 0-9]WORD/**",
                                           "**/*[-._ 0-9]WORD[-._ 0-9]*/**"};
  return patterns;
}

const Paths& FilePatterns() {
  static const auto& patterns =
      *new Paths{"**/WORD[-._ 0-9]*", "**/*[-._ 0-9]WORD[-._ 0-9]*"};
  return patterns;
}

SplitPatterns PatternsOf(const SplitWords& convention, const Paths& patterns) {
  SplitPatterns made = {.split = convention.split};
  for (const std::string& word : convention.words) {
    for (const std::string& pattern : patterns) {
      made.patterns.push_back(absl::StrReplaceAll(pattern, {{"WORD", word}}));
    }
  }
  return made;
}

std::string NameIn(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool Matches(const std::string& pattern, const std::string& file) {
  if (!HasWildcard(pattern)) return pattern == file;
  const std::string name = NameIn(file);
  const bool describes =
      std::find(std::begin(kNoRows), std::end(kNoRows), name) !=
      std::end(kNoRows);
  return MatchesPattern(pattern, file) &&
         (!describes || NameIn(pattern) == name);
}

bool MatchesAny(const SplitPatterns& patterns, const std::string& file) {
  return std::any_of(
      patterns.patterns.begin(),
      patterns.patterns.end(),
      [&](const std::string& each) { return Matches(each, file); });
}

bool IsHeldOut(const std::string& file) {
  static const auto& patterns = *new std::vector<SplitPatterns>{
      PatternsOf({kHeldOutSplit, {kHeldOutSplit, "heldout", "held-out"}},
                 FolderPatterns()),
      PatternsOf({kHeldOutSplit, {kHeldOutSplit, "heldout", "held-out"}},
                 FilePatterns())};
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& each) {
    return MatchesAny(each, file);
  });
}

absl::StatusOr<DataSplit> Resolve(const SplitPatterns& wanted,
                                  const Paths& files) {
  DataSplit split = {.name = wanted.split};
  for (const std::string& pattern : wanted.patterns) {
    bool found = false;
    for (const std::string& file : files) {
      if (!Matches(pattern, file)) continue;
      found = true;
      split.files.push_back(file);
    }
    if (!found && !HasWildcard(pattern)) {
      return DataError(absl::StrCat("the split ",
                                    split.name,
                                    " names the data file ",
                                    Printable(pattern),
                                    ", which is not there"));
    }
  }
  return split;
}

// Returns the text in front of the shard's number: "train" for
// data/train-00000-of-00002.parquet.
std::string NameOfShard(const std::string& file) {
  const std::string base = NameIn(file);
  size_t end = base.rfind("-of-");
  while (end != std::string::npos && end > 0) {
    const size_t dash = base.rfind('-', end - 1);
    if (dash == std::string::npos) break;
    if (end - dash == 6) return base.substr(0, dash);
    end = base.rfind("-of-", end - 1);
  }
  return base;
}

// The order is train, validation, test, then the other splits by name.
absl::StatusOr<std::vector<DataSplit>> SplitsOfShards(const Paths& files) {
  std::map<std::string, Paths> by_name;
  for (const std::string& file : files) {
    if (!MatchesPattern(kShards, file)) continue;
    const std::string name = NameOfShard(file);
    if (!IsSplitName(name)) {
      return DataError(absl::StrCat(
          "the shard ",
          Printable(file),
          " has a name that no split may have; choose files with a glob"));
    }
    by_name[name].push_back(file);
  }
  std::vector<DataSplit> splits;
  for (const SplitWords& convention : Conventions()) {
    if (auto node = by_name.extract(convention.split)) {
      splits.push_back({convention.split, std::move(node.mapped())});
    }
  }
  for (auto& [name, of_split] : by_name) {
    splits.push_back({name, std::move(of_split)});
  }
  return splits;
}

absl::StatusOr<std::vector<DataSplit>> SplitsOfConventions(const Paths& files) {
  ASSIGN_OR_RETURN(std::vector<DataSplit> splits, SplitsOfShards(files));
  for (const Paths* patterns : {&FolderPatterns(), &FilePatterns()}) {
    if (!splits.empty()) return splits;
    for (const SplitWords& convention : Conventions()) {
      ASSIGN_OR_RETURN(DataSplit split,
                       Resolve(PatternsOf(convention, *patterns), files));
      if (!split.files.empty()) splits.push_back(std::move(split));
    }
  }
  if (splits.empty()) {
    ASSIGN_OR_RETURN(DataSplit all, Resolve({kTrainSplit, {"**"}}, files));
    if (!all.files.empty()) splits.push_back(std::move(all));
  }
  return splits;
}

}  // namespace

bool IsSplitName(absl::string_view name) {
  for (const absl::string_view word : absl::StrSplit(name, '.')) {
    if (word.empty() || !std::all_of(word.begin(), word.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
        })) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<DataSplit>> SplitsByPatterns(
    const std::vector<SplitPatterns>& patterns, const Paths& files) {
  std::vector<DataSplit> splits;
  for (const SplitPatterns& wanted : patterns) {
    ASSIGN_OR_RETURN(DataSplit split, Resolve(wanted, files));
    splits.push_back(std::move(split));
  }
  return splits;
}

absl::StatusOr<std::vector<DataSplit>> SplitsByName(const Paths& files) {
  Paths others;
  DataSplit held_out = {.name = kHeldOutSplit};
  for (const std::string& file : files) {
    (IsHeldOut(file) ? held_out.files : others).push_back(file);
  }
  ASSIGN_OR_RETURN(std::vector<DataSplit> splits, SplitsOfConventions(others));
  if (!held_out.files.empty()) splits.push_back(std::move(held_out));
  return splits;
}

}  // namespace dapd
