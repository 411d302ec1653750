#include "common/config/config_keys.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/config/keys/key_rows.h"
#include "common/config/teacher_yaml.h"
#include "common/config/term_yaml.h"
#include "common/config/yaml_text.h"

namespace dapd {
std::vector<ConfigKey> ConfigKeys(Config& config) {
  std::vector<ConfigKey> keys;
  for (const auto section : {RunKeys,
                             ModelKeys,
                             LoraKeys,
                             DataKeys,
                             ObjectiveKeys,
                             PromptsKeys,
                             RolloutKeys,
                             TeacherKeys,
                             TeachersKeys,
                             TrainerKeys,
                             GraderKeys,
                             EvaluationKeys,
                             CheckpointKeys,
                             MetricsKeys,
                             LogKeys,
                             SecurityKeys}) {
    for (ConfigKey& key : section(config)) keys.push_back(std::move(key));
  }
  return keys;
}

std::string TypeName(const ConfigKey& key) {
  struct Name {
    bool is_path;
    std::string operator()(std::string*) const {
      return is_path ? "path" : "string";
    }
    std::string operator()(const EnumVariable&) const { return "string"; }
    std::string operator()(bool*) const { return "boolean"; }
    std::string operator()(int64_t*) const { return "integer"; }
    std::string operator()(uint64_t*) const { return "integer"; }
    std::string operator()(double*) const { return "number"; }
    std::string operator()(std::vector<std::string>*) const {
      return "list of strings";
    }
    std::string operator()(TeacherChoice*) const { return "string or list"; }
    std::string operator()(std::vector<TeacherModel>*) const {
      return "list of teachers";
    }
    std::string operator()(std::vector<Term>*) const { return "list of terms"; }
  };
  return std::visit(Name{key.is_path}, key.target);
}

std::string AcceptedValues(const ConfigKey& key) {
  if (!key.choices.empty()) return absl::StrJoin(key.choices, ", ");
  if (std::holds_alternative<bool*>(key.target)) return "true, false";
  if (std::holds_alternative<uint64_t*>(key.target)) {
    return absl::StrCat("0 to ", std::numeric_limits<uint64_t>::max());
  }
  const bool has_min = std::isfinite(key.min);
  const bool has_max = std::isfinite(key.max);
  if (key.min == key.max) return FormatDouble(key.min);
  if (has_min && has_max) {
    return absl::StrCat(key.above_min ? "above " : "",
                        FormatDouble(key.min),
                        " to ",
                        FormatDouble(key.max));
  }
  if (has_min) {
    return absl::StrCat(key.above_min ? "above " : "at least ",
                        FormatDouble(key.min),
                        ", or .inf");
  }
  return TypeName(key);
}

std::string FormatValue(const ConfigKey& key) {
  struct Format {
    std::string operator()(std::string* v) const { return Quote(*v); }
    std::string operator()(const EnumVariable& v) const {
      return Quote(v.Name());
    }
    std::string operator()(bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(int64_t* v) const { return absl::StrCat(*v); }
    std::string operator()(uint64_t* v) const { return absl::StrCat(*v); }
    std::string operator()(double* v) const { return FormatDouble(*v); }
    std::string operator()(std::vector<std::string>* v) const {
      return FormatList(*v, Quote);
    }
    std::string operator()(TeacherChoice* v) const {
      return v->names.size() == 1 ? Quote(v->names.front())
                                  : FormatList(v->names, Quote);
    }
    std::string operator()(std::vector<TeacherModel>* v) const {
      return FormatList(*v, FormatTeacher);
    }
    std::string operator()(std::vector<Term>* v) const {
      return FormatList(*v, FormatTerm);
    }
  };
  return std::visit(Format{}, key.target);
}

}  // namespace dapd
