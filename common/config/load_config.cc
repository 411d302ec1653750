#include "common/config/load_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/config_files.h"
#include "common/config/config_keys.h"
#include "common/config/preset_terms.h"
#include "common/config/rank_place.h"
#include "common/config/strict_yaml.h"
#include "common/config/validate_config.h"
#include "common/config/value_reader.h"
#include "common/config/yaml_text.h"

extern char** environ;

namespace dapd {
namespace {

constexpr char kEnvironmentPrefix[] = "DAPD_";
constexpr char kDefaultOrigin[] = "default";
constexpr char kEnvironmentOrigin[] = "environment";

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j],
                               std::min({row[j] + 1, row[j - 1] + 1, replace}));
    }
  }
  return row[b.size()];
}

// Returns a key's name without its section.
std::string LastPart(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// Returns "trainer_steps".
std::string WithSingleUnderscores(const ConfigKey& key) {
  return absl::StrReplaceAll(key.name, {{".", "_"}});
}

// Returns "DAPD_TRAINER__STEPS".
std::string VariableOf(const ConfigKey& key) {
  return absl::StrCat(
      kEnvironmentPrefix,
      absl::AsciiStrToUpper(absl::StrReplaceAll(key.name, {{".", "__"}})));
}

// Values are written into JSON files of the run, which are UTF-8, but escapes
// of YAML can produce other bytes.
bool AllUtf8(const YAML::Node& node) {
  if (node.IsScalar()) return IsUtf8(node.Scalar());
  if (node.IsMap()) {
    return std::all_of(node.begin(), node.end(), [](const auto& entry) {
      return AllUtf8(entry.second);
    });
  }
  return !node.IsSequence() ||
         std::all_of(node.begin(), node.end(), [](const YAML::Node& item) {
           return AllUtf8(item);
         });
}

// Returns whether YAML keeps the whole text. In a text without quotes it drops
// anything that looks like a comment, a tag, a directive or the head of a
// block, and folds lines.
bool KeepsText(const std::string& text, const YAML::Node& value) {
  const std::string trimmed(absl::StripAsciiWhitespace(text));
  if (value.IsNull()) return YAML::IsNullString(trimmed);
  if (!value.IsScalar() || value.Scalar() == trimmed) return true;
  const std::string first = trimmed.substr(0, 1);
  const bool is_block =
      (first == "|" || first == ">") && absl::StrContains(trimmed, '\n');
  return first == "'" || first == "\"" || is_block;
}

// Collects every mistake while values are read from all sources.
class Loader {
 public:
  Loader() : keys_(ConfigKeys(loaded_.config)) {
    for (const ConfigKey& key : keys_) {
      loaded_.origins[key.name] = kDefaultOrigin;
    }
  }

  // `origin` is the origin of the values, without the line.
  void ReadYaml(const std::string& path,
                const std::string& origin,
                const YAML::Node& root) {
    file_origin_ = origin;
    if (!root.IsMap()) {
      problems_.push_back(
          absl::StrCat(path, ": a map of sections is expected"));
      return;
    }
    read_keys_.clear();
    ReadMap(path, "", root);
  }

  void ReadEnvironment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      if (!absl::StartsWith(text, kEnvironmentPrefix) ||
          equals == std::string::npos) {
        continue;
      }
      const std::string variable = text.substr(0, equals);
      const std::string name = absl::AsciiStrToLower(
          variable.substr(sizeof(kEnvironmentPrefix) - 1));
      // Only names with a section (DAPD_SECTION__KEY) belong to us, and names
      // of keys that have none (DAPD_TEACHERS). Other names with this prefix
      // may belong to anybody, unless they spell a key.
      const auto key = std::ranges::find(keys_, name, WithSingleUnderscores);
      const bool is_whole =
          key != keys_.end() && !absl::StrContains(key->name, ".");
      if (absl::StrContains(name, "__") || is_whole) {
        SetFromText(kEnvironmentOrigin,
                    variable,
                    absl::StrReplaceAll(name, {{"__", "."}}),
                    text.substr(equals + 1));
      } else if (key != keys_.end()) {
        problems_.push_back(absl::StrCat(
            variable, " is not read; ", key->name, " is ", VariableOf(*key)));
      }
    }
  }

  void ReadOverrides(const std::vector<std::string>& overrides) {
    for (const std::string& text : overrides) {
      const size_t equals = text.find('=');
      if (equals == std::string::npos) {
        problems_.push_back(
            absl::StrCat("--set ", text, ": key=value is expected"));
        continue;
      }
      SetFromText(
          "--set", "--set", text.substr(0, equals), text.substr(equals + 1));
    }
  }

  // Call it after all values are read: sets the defaults of the preset.
  void ReadPreset() {
    if (!problems_.empty()) return;
    for (const PresetDefault& preset :
         PresetDefaults(loaded_.config.objective.preset)) {
      if (loaded_.origins.at(preset.key) != kDefaultOrigin) continue;
      Set("objective.preset", "preset", preset.key, YAML::Node(preset.value));
    }
  }

  // Sets the ranks of machines with several ranks.
  void PlaceRanks() {
    if (!problems_.empty()) return;
    problems_ = PlaceRanksByMachine(&loaded_);
  }

  // Contradictions between invalid values would only confuse.
  absl::StatusOr<LoadedConfig> Finish(const std::string& path) {
    if (problems_.empty()) problems_ = FindContradictions(loaded_.config);
    if (problems_.empty()) return std::move(loaded_);
    return Problems(path);
  }
  Config Peek() { return std::move(loaded_.config); }
  absl::StatusOr<SecuritySection> FinishSecurity() {
    const SecuritySection& security = loaded_.config.security;
    if (problems_.empty()) problems_ = FindContradictions(security);
    if (problems_.empty()) return security;
    return Problems("the environment with --set");
  }

 private:
  void ReadMap(const std::string& path,
               const std::string& prefix,
               const YAML::Node& map) {
    for (const auto& entry : map) {
      const std::string name = absl::StrCat(prefix, entry.first.Scalar());
      const std::string where =
          absl::StrCat(path, ":", entry.first.Mark().line + 1);
      if (name == kExtends) continue;  // read before
      const bool is_section =
          std::any_of(keys_.begin(), keys_.end(), [&](const ConfigKey& key) {
            return absl::StartsWith(key.name, name + ".");
          });
      if (!is_section && !read_keys_.insert(name).second) {
        // In its section and, with dots, outside.
        problems_.push_back(absl::StrCat(where, ": ", name, " occurs twice"));
      } else if (!is_section) {
        Set(where,
            absl::StrCat(file_origin_, ":", entry.first.Mark().line + 1),
            name,
            entry.second);
      } else if (entry.second.IsMap()) {
        ReadMap(path, name + ".", entry.second);
      } else if (!entry.second.IsNull()) {
        problems_.push_back(absl::StrCat(
            where, ": ", name, " is a section, keys are expected below it"));
      }
    }
  }

  void SetFromText(const std::string& origin,
                   const std::string& where,
                   const std::string& name,
                   const std::string& text) {
    std::string problem;
    try {
      const YAML::Node value = ParseStrictYaml(text);
      if (!IsText(name) || KeepsText(text, value)) {
        Set(where, origin, name, value);
        return;
      }
      problem = absl::StrCat(
          "YAML takes it for '", value.IsNull() ? "" : value.Scalar(), "'");
    } catch (const YAML::Exception& error) {
      problem = error.what();
    }
    if (IsText(name)) {
      absl::StrAppend(&problem,
                      ": put quotes around such a text, and the shell's around "
                      "both: ",
                      origin == kEnvironmentOrigin
                          ? absl::StrCat(where, "='", Quote(text), "'")
                          : absl::StrCat("'", TextOverride(name, text), "'"));
    }
    problems_.push_back(
        absl::StrCat(where, ": ", name, "=", text, ": ", problem));
  }

  // Returns whether quotes may help: numbers and booleans need none.
  bool IsText(const std::string& name) const {
    const auto key = std::ranges::find(keys_, name, &ConfigKey::name);
    return key != keys_.end() &&
           (std::holds_alternative<std::string*>(key->target) ||
            std::holds_alternative<EnumVariable>(key->target) ||
            std::holds_alternative<std::vector<std::string>*>(key->target) ||
            std::holds_alternative<TeacherChoice*>(key->target));
  }

  void Set(const std::string& where,
           const std::string& origin,
           const std::string& name,
           const YAML::Node& value) {
    const auto found =
        std::find_if(keys_.begin(), keys_.end(), [&](const ConfigKey& key) {
          return key.name == name;
        });
    if (found == keys_.end()) {
      problems_.push_back(
          absl::StrCat(where, ": unknown key ", name, Nearest(name)));
      return;
    }
    const std::string problem =
        AllUtf8(value) ? ReadValue(value, *found) : "the value is not UTF-8";
    if (!problem.empty()) {
      problems_.push_back(absl::StrCat(where, ": ", name, ": ", problem));
      return;
    }
    loaded_.origins[name] = origin;
  }

  // If the name is right, only its section is missing or wrong. A key that
  // shares less than half of the name is not suggested: lr is not close to
  // rank.
  std::string Nearest(const std::string& name) const {
    const auto rank = [&name](const ConfigKey& key) {
      return std::pair(LastPart(key.name) != LastPart(name),
                       EditDistance(key.name, name));
    };
    const std::string& nearest =
        std::ranges::min_element(keys_, {}, rank)->name;
    const bool is_near =
        LastPart(nearest) == LastPart(name) ||
        2 * EditDistance(nearest, name) <= LastPart(name).size() + 1;
    return is_near ? absl::StrCat("; the nearest is ", nearest)
                   : "; dapd config-reference prints all keys";
  }

  absl::Status Problems(const std::string& what) const {
    // One line for each, whatever it quotes.
    std::vector<std::string> lines;
    for (const std::string& problem : problems_) {
      lines.push_back(Printable(problem));
    }
    return ConfigError(absl::StrCat(what,
                                    " is not a valid configuration:\n  ",
                                    absl::StrJoin(lines, "\n  ")));
  }

  LoadedConfig loaded_;
  std::vector<ConfigKey> keys_;      // points into loaded_
  std::string file_origin_;          // of the file that is read
  std::set<std::string> read_keys_;  // of that file
  std::vector<std::string> problems_;
};

void ReadFiles(const std::vector<ConfigFile>& files, Loader* loader) {
  for (const ConfigFile& file : files) {
    const std::string name =
        Printable(std::filesystem::path(file.path).filename().string());
    loader->ReadYaml(
        file.path, &file == &files.back() ? "file" : name, file.root);
  }
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::vector<ConfigFile> files, ReadConfigFiles(path));
  Loader loader;
  ReadFiles(files, &loader);
  loader.ReadEnvironment();
  loader.ReadOverrides(overrides);
  loader.ReadPreset();
  loader.PlaceRanks();
  return loader.Finish(path);
}

absl::StatusOr<LoadedConfig> LoadWrittenConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<ConfigFile> files, ReadConfigFiles(path));
  Loader loader;
  ReadFiles(files, &loader);
  loader.ReadPreset();
  loader.PlaceRanks();
  return loader.Finish(path);
}

Config PeekConfig(const std::string& path,
                  const std::vector<std::string>& overrides) {
  Loader loader;
  if (const auto files = ReadConfigFiles(path); files.ok()) {
    ReadFiles(*files, &loader);
  }
  loader.ReadEnvironment();
  loader.ReadOverrides(overrides);
  loader.PlaceRanks();
  return loader.Peek();
}

absl::StatusOr<SecuritySection> LoadSecurity(
    const std::vector<std::string>& overrides) {
  Loader loader;
  loader.ReadEnvironment();
  loader.ReadOverrides(overrides);
  return loader.FinishSecurity();
}

}  // namespace dapd
