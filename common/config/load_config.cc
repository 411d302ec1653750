#include "common/config/load_config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/config_keys.h"
#include "common/config/preset_terms.h"
#include "common/config/rank_place.h"
#include "common/config/validate_config.h"
#include "common/config/value_reader.h"

extern char** environ;

namespace dapd {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr char kEnvironmentPrefix[] = "DAPD_";
constexpr char kDefaultOrigin[] = "default";
constexpr char kExtends[] = "extends";
constexpr size_t kMaxExtended = 8;

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

// Throws YAML::ParserException where a text has what is not accepted: an alias
// lets a small file stand for an endless one, a second document would be
// ignored.
class Restrictions : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw YAML::ParserException(mark, "only one document is accepted");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Refuse(mark, anchor);
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string&,
                YAML::anchor_t anchor,
                const std::string&) override {
    Refuse(mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string&,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Refuse(mark, anchor);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark,
                  const std::string&,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Refuse(mark, anchor);
  }
  void OnMapEnd() override {}

 private:
  static void Refuse(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      throw YAML::ParserException(mark, "anchors and aliases are not accepted");
    }
  }
  int documents_ = 0;
};

// Throws YAML::Exception.
YAML::Node ParseYaml(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Restrictions restrictions;
  while (parser.HandleNextDocument(restrictions)) {
  }
  return YAML::Load(text);
}

// Values are written into JSON files of the run, which are UTF-8. YAML's
// escapes can spell what is not.
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

// Collects every mistake while values are read from all sources.
class Loader {
 public:
  Loader() : keys_(ConfigKeys(loaded_.config)) {
    for (const ConfigKey& key : keys_) {
      loaded_.origins[key.name] = kDefaultOrigin;
    }
  }

  // `origin`: of its values, before the line.
  void ReadYaml(const std::string& path,
                const std::string& origin,
                const YAML::Node& root) {
    file_origin_ = origin;
    if (!root.IsMap()) {
      problems_.push_back(
          absl::StrCat(path, ": a map of sections is expected"));
      return;
    }
    ReadMap(path, "", root);
  }

  void ReadEnvironment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      // Only names with a section are ours: DAPD_SECTION__KEY.
      if (!absl::StartsWith(text, kEnvironmentPrefix) ||
          equals == std::string::npos ||
          !absl::StrContains(text.substr(0, equals), "__")) {
        continue;
      }
      const std::string variable = text.substr(0, equals);
      const std::string key = absl::StrReplaceAll(
          absl::AsciiStrToLower(
              variable.substr(sizeof(kEnvironmentPrefix) - 1)),
          {{"__", "."}});
      SetFromText("environment", variable, key, text.substr(equals + 1));
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

  // Once all values are read: what the preset has in the place of defaults.
  void ReadPreset() {
    if (!problems_.empty()) return;
    for (const PresetDefault& preset :
         PresetDefaults(loaded_.config.objective.preset)) {
      if (loaded_.origins.at(preset.key) != kDefaultOrigin) continue;
      Set("objective.preset", "preset", preset.key, YAML::Node(preset.value));
    }
  }

  // Which ranks there are, where machines have several.
  void PlaceRanks() {
    if (!problems_.empty()) return;
    problems_ = PlaceRanksByMachine(&loaded_);
  }

  // Contradictions between values that are no values would only confuse.
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
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const std::string name = absl::StrCat(prefix, entry.first.Scalar());
      const std::string where =
          absl::StrCat(path, ":", entry.first.Mark().line + 1);
      if (name == kExtends) continue;  // read before
      if (!seen.insert(name).second) {
        problems_.push_back(absl::StrCat(where, ": ", name, " occurs twice"));
        continue;
      }
      const bool is_section =
          std::any_of(keys_.begin(), keys_.end(), [&](const ConfigKey& key) {
            return absl::StartsWith(key.name, name + ".");
          });
      if (!is_section) {
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
    try {
      Set(where, origin, name, ParseYaml(text));
    } catch (const YAML::Exception& error) {
      problems_.push_back(
          absl::StrCat(where, ": ", name, "=", text, ": ", error.what()));
    }
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
      problems_.push_back(absl::StrCat(
          where, ": unknown key ", name, "; the nearest is ", Nearest(name)));
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

  std::string Nearest(const std::string& name) const {
    return std::min_element(keys_.begin(),
                            keys_.end(),
                            [&](const ConfigKey& a, const ConfigKey& b) {
                              return EditDistance(a.name, name) <
                                     EditDistance(b.name, name);
                            })
        ->name;
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
  std::vector<ConfigKey> keys_;  // points into loaded_
  std::string file_origin_;      // of the file that is read
  std::vector<std::string> problems_;
};

struct ConfigFile {
  std::string path;
  YAML::Node root;

  // Undefined: it extends none.
  YAML::Node extended() const {
    const YAML::Node& map = root;
    return map.IsMap() ? map[kExtends] : YAML::Node(YAML::NodeType::Undefined);
  }
};

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kConfig);
  try {
    return ConfigFile{path, ParseYaml(*text)};
  } catch (const YAML::Exception& error) {
    return ConfigError(absl::StrCat(Printable(path),
                                    ":",
                                    error.mark.line + 1,
                                    ": not valid YAML: ",
                                    error.msg));
  }
}

// The file at `path` behind those that it extends.
absl::StatusOr<std::vector<ConfigFile>> ReadConfigFiles(
    const std::string& path) {
  ASSIGN_OR_RETURN(ConfigFile first, ReadConfigFile(path));
  std::vector<ConfigFile> files = {std::move(first)};
  while (files.front().extended()) {
    const ConfigFile& file = files.front();
    const YAML::Node extended = file.extended();
    if (!extended.IsScalar() || extended.Scalar().empty()) {
      return ConfigError(absl::StrCat(
          Printable(file.path), ": extends: the path of a file is expected"));
    }
    if (files.size() > kMaxExtended) {
      return ConfigError(absl::StrCat(Printable(path),
                                      " extends more than ",
                                      kMaxExtended,
                                      " files, or itself"));
    }
    const std::filesystem::path folder =
        std::filesystem::path(file.path).parent_path();
    const std::filesystem::path base_path = folder / extended.Scalar();
    std::error_code error;
    if (!std::filesystem::is_regular_file(base_path, error)) {
      return ConfigError(absl::StrCat(Printable(file.path),
                                      ": extends: ",
                                      Printable(base_path.string()),
                                      " is no file"));
    }
    ASSIGN_OR_RETURN(ConfigFile base, ReadConfigFile(base_path.string()));
    files.insert(files.begin(), std::move(base));
  }
  return files;
}

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

std::string DumpConfig(const LoadedConfig& loaded) {
  Config config = loaded.config;
  std::string text;
  std::vector<std::string> open;  // sections that are written so far
  for (const ConfigKey& key : ConfigKeys(config)) {
    std::vector<std::string> path;
    for (size_t start = 0, dot = 0; dot != std::string::npos; start = dot + 1) {
      dot = key.name.find('.', start);
      path.push_back(key.name.substr(start, dot - start));
    }
    size_t common = 0;
    while (common + 1 < path.size() && common < open.size() &&
           open[common] == path[common]) {
      ++common;
    }
    for (size_t depth = common; depth + 1 < path.size(); ++depth) {
      absl::StrAppend(&text, std::string(2 * depth, ' '), path[depth], ":\n");
    }
    open.assign(path.begin(), path.end() - 1);
    absl::StrAppend(&text,
                    std::string(2 * open.size(), ' '),
                    path.back(),
                    ": ",
                    FormatValue(key),
                    "  # ",
                    loaded.origins.at(key.name),
                    "\n");
  }
  return text;
}

std::string ConfigReference() {
  Config config;
  std::string text =
      "# Configuration reference\n\n"
      "Generated by `dapd config-reference` from the key table in "
      "common/config/keys.\nPrecedence: file < environment "
      "(`DAPD_TRAINER__LEARNING_RATE`) < `--set "
      "trainer.learning_rate=1e-5`.\nA file may begin with `extends: "
      "OTHER.yaml`, relative to itself, and say only what differs "
      "from that one.\n`objective.preset` changes some "
      "defaults (docs/objective.md, \"Presets\").\nA run that goes on may have "
      "other values than it began with only where the table says so.\n";
  std::string section;
  for (const ConfigKey& key : ConfigKeys(config)) {
    const std::string name = key.name.substr(0, key.name.find('.'));
    if (name != section) {
      section = name;
      absl::StrAppend(&text,
                      "\n## ",
                      section,
                      "\n\n| key | type | accepted | default | on resume | "
                      "meaning |\n| --- | --- | --- | --- | --- | --- |\n");
    }
    const std::string accepted = AcceptedValues(key);
    absl::StrAppend(&text,
                    "| `",
                    key.name,
                    "` | ",
                    TypeName(key),
                    " | ",
                    accepted == TypeName(key) ? "" : accepted,
                    " | `",
                    FormatValue(key),
                    "` | ",
                    key.may_change ? "may change" : "",
                    " | ",
                    absl::StrReplaceAll(key.help, {{"|", "\\|"}}),
                    " |\n");
  }
  return text;
}

}  // namespace dapd
