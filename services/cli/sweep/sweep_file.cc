#include "services/cli/sweep/sweep_file.h"

#include <yaml-cpp/yaml.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/safe_name.h"
#include "common/base/user_path.h"
#include "common/config/strict_yaml.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 100;

// Throws the error that ReadSweepFile catches.
[[noreturn]] void Refuse(const YAML::Node& node, const std::string& problem) {
  throw YAML::ParserException(node.Mark(), problem);
}

// Returns a value for --set: YAML, in which a quoted or block text keeps its
// blanks, its lines and "#".
std::string ValueText(const YAML::Node& node) {
  if (node.IsScalar()) {
    return node.Tag() == "!" ? Quote(node.Scalar()) : node.Scalar();
  }
  if (node.IsNull()) Refuse(node, "a value is missing");
  YAML::Emitter text;
  text.SetMapFormat(YAML::Flow);
  text.SetSeqFormat(YAML::Flow);
  text << node;
  return text.c_str();
}

// Turns {"trainer.steps": 60} into "trainer.steps=60".
Overrides ReadSet(const YAML::Node& node) {
  Overrides overrides;
  if (!node || node.IsNull()) return overrides;
  if (!node.IsMap()) Refuse(node, "a map of keys and values is expected");
  for (const auto& entry : node) {
    overrides.push_back(
        absl::StrCat(entry.first.Scalar(), "=", ValueText(entry.second)));
  }
  return overrides;
}

// Turns "trainer.learning_rate", 1.0e-4 into "learning_rate-1.0e-4".
std::string ShortName(const std::string& key, const YAML::Node& value) {
  const size_t dot = key.rfind('.');
  std::string name =
      absl::StrCat(key.substr(dot == std::string::npos ? 0 : dot + 1),
                   "-",
                   value.IsScalar() ? value.Scalar() : ValueText(value));
  for (char& c : name) {
    if (!IsSafeName(std::string("a") + c)) c = '_';
  }
  return name;
}

std::vector<SweepSetting> ReadGrid(const YAML::Node& grid) {
  if (!grid.IsMap() || grid.size() == 0) {
    Refuse(grid, "grid: a map of keys and lists of values is expected");
  }
  std::vector<SweepSetting> settings(1);
  for (const auto& entry : grid) {
    const YAML::Node& values = entry.second;
    if (!values.IsSequence() || values.size() == 0) {
      Refuse(
          entry.first,
          absl::StrCat(
              "grid.", entry.first.Scalar(), ": a list of values is expected"));
    }
    std::vector<SweepSetting> product;
    for (const SweepSetting& setting : settings) {
      for (const YAML::Node& value : values) {
        SweepSetting& next = product.emplace_back(setting);
        const std::string key = entry.first.Scalar();
        next.overrides.push_back(absl::StrCat(key, "=", ValueText(value)));
        absl::StrAppend(
            &next.name, next.name.empty() ? "" : "-", ShortName(key, value));
      }
    }
    if (product.size() > kMaxSweepRuns) {
      Refuse(grid, absl::StrCat("grid: more than ", kMaxSweepRuns, " runs"));
    }
    settings = std::move(product);
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    std::string& name = settings[i].name;
    if (name.size() > kMaxNameBytes || !IsSafeName(name)) {
      name = absl::StrFormat("setting-%03d", i + 1);
    }
  }
  return settings;
}

std::vector<SweepSetting> ReadList(const YAML::Node& list) {
  if (!list.IsSequence() || list.size() == 0) {
    Refuse(list, "list: a list of {name, set} is expected");
  }
  std::vector<SweepSetting> settings;
  for (const YAML::Node& item : list) {
    if (!item.IsMap() || !item["name"] || !item["name"].IsScalar()) {
      Refuse(item, "list: each setting needs a name");
    }
    for (const auto& entry : item) {
      const std::string key = entry.first.Scalar();
      if (key != "name" && key != "set") {
        Refuse(entry.first, absl::StrCat("list: unknown key ", key));
      }
    }
    const std::string name = item["name"].Scalar();
    if (!IsSafeName(name) || name.size() > kMaxNameBytes) {
      Refuse(item["name"],
             absl::StrCat("list: the name '",
                          name,
                          "' must be of letters, digits, '.', '_' and '-'"));
    }
    settings.push_back({name, ReadSet(item["set"])});
  }
  return settings;
}

SweepFile ReadNodes(const YAML::Node& root) {
  static const auto& known = *new std::set<std::string>{"name",
                                                        "config",
                                                        "set",
                                                        "grid",
                                                        "list",
                                                        "seeds",
                                                        "parallel",
                                                        "memory_gib"};
  if (!root.IsMap()) Refuse(root, "a map of keys is expected");
  for (const auto& entry : root) {
    if (known.contains(entry.first.Scalar())) continue;
    Refuse(entry.first,
           absl::StrCat("unknown key ",
                        entry.first.Scalar(),
                        "; the keys are ",
                        absl::StrJoin(known, ", ")));
  }
  SweepFile file;
  for (const auto& [key, target] :
       {std::pair("name", &file.name), {"config", &file.config}}) {
    if (!root[key] || !root[key].IsScalar()) {
      Refuse(root, absl::StrCat(key, " is missing"));
    }
    *target = root[key].Scalar();
  }
  if (const std::string wrong = ExpandUserPath(&file.config); !wrong.empty()) {
    Refuse(root["config"], absl::StrCat("config: ", wrong));
  }
  if (!IsSafeName(file.name)) {
    Refuse(root["name"],
           "name: letters, digits, '.', '_' and '-' are expected");
  }
  file.common = ReadSet(root["set"]);
  if (root["grid"] && root["list"]) {
    Refuse(root["list"], "there is also a grid; give only one of the two");
  }
  if (root["grid"]) {
    file.settings = ReadGrid(root["grid"]);
  } else if (root["list"]) {
    file.settings = ReadList(root["list"]);
  } else {
    file.settings = {{"", {}}};
  }
  if (root["seeds"]) {
    if (!root["seeds"].IsSequence() || root["seeds"].size() == 0) {
      Refuse(root["seeds"], "seeds: a list of numbers is expected");
    }
    for (const YAML::Node& seed : root["seeds"]) {
      file.seeds.push_back(absl::StrCat(seed.as<uint64_t>()));
    }
  }
  if (root["parallel"]) file.parallel = root["parallel"].as<int64_t>();
  if (root["memory_gib"]) file.memory_gib = root["memory_gib"].as<double>();
  if (root["parallel"] && file.parallel < 1) {
    Refuse(root["parallel"], "parallel: at least 1 is expected");
  }
  if (root["memory_gib"] && !(file.memory_gib > 0)) {
    Refuse(root["memory_gib"], "memory_gib: a positive number is expected");
  }
  return file;
}

}  // namespace

absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path) try {
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kConfig);
  return ReadNodes(ParseStrictYaml(*text));
} catch (const YAML::BadConversion& error) {
  return ConfigError(absl::StrCat(
      path,
      ":",
      error.mark.line + 1,
      ": a number is expected: a non-negative integer for each of seeds, an "
      "integer for parallel, a positive number for memory_gib"));
} catch (const YAML::Exception& error) {
  return ConfigError(
      absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
}

}  // namespace dapd
