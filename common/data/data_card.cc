#include "common/data/data_card.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/strict_yaml.h"
#include "common/data/data_splits.h"
#include "common/data/file_pattern.h"

namespace dapd {
namespace {

constexpr char kLine[] = "---";

// These settings of a configuration make `datasets` read other rows from the
// same files. `datasets` ignores settings that it does not know.
constexpr const char* kOtherRows[] = {"columns",
                                      "encoding",
                                      "encoding_errors",
                                      "features",
                                      "field",
                                      "filters",
                                      "on_bad_files"};

class CardReader {
 public:
  explicit CardReader(std::string where) : where_(std::move(where)) {}

  absl::StatusOr<std::vector<DataConfiguration>> Read(const YAML::Node& card) {
    std::vector<DataConfiguration> configurations;
    if (!card.IsMap() || !card["configs"]) return configurations;
    const YAML::Node list = card["configs"];
    if (list.IsNull()) return configurations;
    if (!list.IsSequence()) return Refuse("configs is not a list");
    std::set<std::string> names;
    for (const YAML::Node& item : list) {
      ASSIGN_OR_RETURN(DataConfiguration configuration, Configuration(item));
      if (!names.insert(configuration.name).second) {
        return Refuse(absl::StrCat("the configuration '",
                                   Printable(configuration.name),
                                   "' occurs twice"));
      }
      configurations.push_back(std::move(configuration));
    }
    return configurations;
  }

 private:
  absl::Status Refuse(absl::string_view what) const {
    return DataError(absl::StrCat(where_, ": ", what));
  }

  absl::StatusOr<std::string> Text(const YAML::Node& node,
                                   absl::string_view what) const {
    if (node && node.IsScalar() && !node.Scalar().empty()) {
      return node.Scalar();
    }
    return Refuse(absl::StrCat(what, " is not a text"));
  }

  absl::StatusOr<std::string> Pattern(const YAML::Node& node,
                                      const std::string& what) const {
    ASSIGN_OR_RETURN(const std::string text, Text(node, what));
    auto pattern = NormalizePattern(text);
    if (pattern.ok()) return pattern;
    return Refuse(absl::StrCat(what, ": ", pattern.status().message()));
  }

  absl::StatusOr<std::vector<std::string>> Patterns(
      const YAML::Node& node, const std::string& what) const {
    std::vector<std::string> patterns;
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) {
        ASSIGN_OR_RETURN(patterns.emplace_back(), Pattern(item, what));
      }
    } else {
      ASSIGN_OR_RETURN(patterns.emplace_back(), Pattern(node, what));
    }
    return patterns;
  }

  absl::StatusOr<SplitPatterns> Split(const YAML::Node& item,
                                      const std::string& what) const {
    if (!item.IsMap() || item.size() != 2 || !item["split"] || !item["path"]) {
      return Refuse(absl::StrCat(
          what,
          " must be patterns, or splits with only the keys split and path"));
    }
    SplitPatterns split;
    ASSIGN_OR_RETURN(split.split, Text(item["split"], what + ": split"));
    if (!IsSplitName(split.split)) {
      return Refuse(absl::StrCat(
          what, ": a split may not be called '", Printable(split.split), "'"));
    }
    ASSIGN_OR_RETURN(
        split.patterns,
        Patterns(item["path"], absl::StrCat(what, ": ", split.split)));
    return split;
  }

  // `node` is a pattern, a list of patterns, or a list of splits.
  absl::StatusOr<std::vector<SplitPatterns>> DataFiles(
      const YAML::Node& node, const std::string& what) const {
    std::vector<SplitPatterns> splits;
    const bool has_splits =
        node.IsSequence() &&
        std::any_of(node.begin(), node.end(), [](const YAML::Node& item) {
          return item.IsMap();
        });
    if (!has_splits) {
      splits.push_back({.split = kTrainSplit});
      ASSIGN_OR_RETURN(splits.back().patterns, Patterns(node, what));
      return splits;
    }
    std::set<std::string> names;
    for (const YAML::Node& item : node) {
      ASSIGN_OR_RETURN(SplitPatterns split, Split(item, what));
      if (!names.insert(split.split).second) {
        return Refuse(
            absl::StrCat(what, ": the split '", split.split, "' occurs twice"));
      }
      splits.push_back(std::move(split));
    }
    return splits;
  }

  absl::StatusOr<DataConfiguration> Configuration(
      const YAML::Node& item) const {
    if (!item.IsMap() || !item["config_name"]) {
      return Refuse("an entry of configs has no config_name");
    }
    DataConfiguration configuration;
    ASSIGN_OR_RETURN(configuration.name,
                     Text(item["config_name"], "a config_name"));
    const std::string what =
        absl::StrCat("configuration '", Printable(configuration.name), "'");
    for (const char* key : kOtherRows) {
      if (!item[key] || item[key].IsNull()) continue;
      return Refuse(absl::StrCat(what,
                                 " sets ",
                                 key,
                                 ", which is not read here; choose its files "
                                 "with a glob"));
    }
    if (const YAML::Node marked = item["default"]; marked) {
      if (!YAML::convert<bool>::decode(marked, configuration.is_default)) {
        return Refuse(absl::StrCat(what, ": default is not true or false"));
      }
    }
    if (const YAML::Node folder = item["data_dir"];
        folder && !folder.IsNull() && folder.IsScalar() &&
        folder.Scalar() != "." && folder.Scalar() != "./") {
      ASSIGN_OR_RETURN(configuration.data_dir,
                       Pattern(folder, what + ": data_dir"));
    }
    if (const YAML::Node files = item["data_files"]; files && !files.IsNull()) {
      ASSIGN_OR_RETURN(configuration.data_files,
                       DataFiles(files, what + ": data_files"));
    }
    return configuration;
  }

  const std::string where_;
};

std::string NamesOf(const std::vector<DataConfiguration>& configurations) {
  return absl::StrJoin(configurations,
                       ", ",
                       [](std::string* out, const DataConfiguration& each) {
                         absl::StrAppend(out, Printable(each.name));
                       });
}

}  // namespace

absl::string_view CardHead(absl::string_view readme) {
  readme = absl::StripLeadingAsciiWhitespace(readme);
  if (!absl::StartsWith(readme, kLine)) return "";
  size_t begin = sizeof(kLine) - 1;
  if (begin >= readme.size() ||
      (readme[begin] != '\n' && readme[begin] != '\r')) {
    return "";
  }
  for (size_t line = readme.find('\n', begin); line != absl::string_view::npos;
       line = readme.find('\n', line + 1)) {
    absl::string_view rest = readme.substr(line + 1);
    if (!absl::ConsumePrefix(&rest, kLine)) continue;
    if (rest.empty() || rest[0] == '\n' || rest.substr(0, 2) == "\r\n") {
      return readme.substr(begin, line + 1 - begin);
    }
  }
  return "";
}

absl::StatusOr<std::vector<DataConfiguration>> ParseDataCard(
    absl::string_view yaml, const std::string& where) {
  // The rest of a card is not read, and need not be YAML.
  if (!absl::StrContains(yaml, "configs")) {
    return std::vector<DataConfiguration>();
  }
  try {
    return CardReader(where).Read(ParseStrictYaml(std::string(yaml)));
  } catch (const YAML::Exception& error) {
    return DataError(absl::StrCat(where, ": ", error.what()));
  }
}

absl::StatusOr<DataConfiguration> ChooseConfiguration(
    const std::vector<DataConfiguration>& configurations,
    const std::string& name,
    const std::string& path) {
  std::vector<DataConfiguration> chosen;
  for (const DataConfiguration& each : configurations) {
    const bool is_meant = name.empty()
                              ? configurations.size() == 1 || each.is_default ||
                                    each.name == kDefaultConfiguration
                              : each.name == name;
    if (is_meant) chosen.push_back(each);
  }
  if (chosen.size() == 1) return chosen.front();
  if (!name.empty()) {
    return DataError(absl::StrCat(path,
                                  " has no configuration '",
                                  Printable(name),
                                  "'; available: ",
                                  NamesOf(configurations)));
  }
  const bool has_none = chosen.empty();
  const auto& named = has_none ? configurations : chosen;
  return DataError(absl::StrCat(
      path,
      has_none ? " has several configurations, of which none is the default ("
               : " has several configurations that are the default (",
      NamesOf(named),
      "); choose with ",
      path,
      "#",
      named.front().name));
}

}  // namespace dapd
