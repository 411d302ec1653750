#include "common/config/value_reader.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/user_path.h"
#include "common/config/teacher_yaml.h"
#include "common/config/term_yaml.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

std::string ShortText(const YAML::Node& node) {
  if (node.IsScalar()) return absl::StrCat("'", node.Scalar(), "'");
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  return "nothing";
}

// Returns "true" or "false" for the spellings of other languages and of YAML
// before version 1.2; empty for any other text.
std::string MeantFlag(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* yes : {"true", "yes", "on", "y", "1"}) {
    if (lower == yes) return "true";
  }
  for (const char* no : {"false", "no", "off", "n", "0"}) {
    if (lower == no) return "false";
  }
  return "";
}

struct Reader {
  const YAML::Node& node;
  const ConfigKey& key;

  std::string Wrong() const {
    return absl::StrCat(
        ShortText(node),
        " is not accepted; ",
        TypeName(key),
        TypeName(key) == AcceptedValues(key) ? "" : ": ",
        TypeName(key) == AcceptedValues(key) ? "" : AcceptedValues(key));
  }
  bool InRange(double value) const {
    return value <= key.max &&
           (key.above_min ? value > key.min : value >= key.min);
  }
  bool IsChoice(const std::string& text) const {
    return key.choices.empty() ||
           std::find(key.choices.begin(), key.choices.end(), text) !=
               key.choices.end();
  }

  std::string operator()(std::string* out) const {
    if (node.IsNull()) {
      // A missing value is accepted only if the empty text is a choice.
      if (!IsChoice("")) return Wrong();
      out->clear();
      return "";
    }
    if (!node.IsScalar() && key.choices.empty()) {
      return absl::StrCat(
          Wrong(), ": put quotes around a text with ': ', braces or brackets");
    }
    if (!node.IsScalar() || !IsChoice(node.Scalar())) return Wrong();
    std::string text = node.Scalar();
    if (key.is_path) {
      if (std::string wrong = ExpandUserPath(&text); !wrong.empty()) {
        return wrong;
      }
    }
    *out = std::move(text);
    return "";
  }
  std::string operator()(const EnumVariable& out) const {
    return node.IsScalar() && IsChoice(node.Scalar()) && out.Set(node.Scalar())
               ? ""
               : Wrong();
  }
  std::string operator()(bool* out) const {
    if (!node.IsScalar()) return Wrong();
    const std::string& text = node.Scalar();
    if (text != "true" && text != "false") {
      const std::string meant = MeantFlag(text);
      return meant.empty() ? Wrong() : absl::StrCat(Wrong(), "; write ", meant);
    }
    *out = text == "true";
    return "";
  }
  std::string operator()(int64_t* out) const {
    int64_t value = 0;
    if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), &value) ||
        !InRange(static_cast<double>(value))) {
      return Wrong();
    }
    *out = value;
    return "";
  }
  std::string operator()(uint64_t* out) const {
    uint64_t value = 0;
    if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), &value)) {
      return Wrong();
    }
    *out = value;
    return "";
  }
  std::string operator()(double* out) const {
    double value = 0.0;
    if (!node.IsScalar() || !ParseDouble(node.Scalar(), &value) ||
        !InRange(value)) {
      return Wrong();
    }
    *out = value;
    return "";
  }
  std::string operator()(std::vector<std::string>* out) const {
    // A single text stands for a list of one.
    std::vector<std::string> list;
    if (node.IsScalar()) {
      list.push_back(node.Scalar());
    } else if (node.IsSequence()) {
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) return Wrong();
        list.push_back(item.Scalar());
      }
    } else {
      return Wrong();
    }
    std::set<std::string> seen;
    for (std::string& item : list) {
      if (key.is_path) {
        if (std::string wrong = ExpandFileAddress(&item); !wrong.empty()) {
          return wrong;
        }
      }
      if (!IsChoice(item)) {
        return absl::StrCat("'", item, "' is not one of ", AcceptedValues(key));
      }
      if (!seen.insert(item).second && !key.is_command) {
        return absl::StrCat("'", item, "' occurs twice");
      }
    }
    if (list.empty() && !key.is_command) return "the list is empty";
    *out = std::move(list);
    return "";
  }
  std::string operator()(TeacherChoice* out) const {
    std::vector<std::string> names;
    const std::string problem = (*this)(&names);
    if (problem.empty()) out->names = std::move(names);
    return problem;
  }
  std::string operator()(std::vector<TeacherModel>* out) const {
    if (!node.IsSequence()) return Wrong();
    std::vector<TeacherModel> teachers;
    for (const YAML::Node& item : node) {
      TeacherModel teacher;
      const std::string problem = ReadTeacher(item, teachers.size(), &teacher);
      if (!problem.empty()) {
        return absl::StrCat("teacher ", teachers.size() + 1, ": ", problem);
      }
      teachers.push_back(std::move(teacher));
    }
    *out = std::move(teachers);
    return "";
  }
  std::string operator()(std::vector<Term>* out) const {
    if (!node.IsSequence()) return Wrong();
    std::vector<Term> terms;
    for (const YAML::Node& item : node) {
      Term term;
      const std::string problem = ReadTerm(item, &term);
      if (!problem.empty()) {
        return absl::StrCat("term ", terms.size() + 1, ": ", problem);
      }
      terms.push_back(std::move(term));
    }
    *out = std::move(terms);
    return "";
  }
};

}  // namespace

std::string ReadValue(const YAML::Node& node, const ConfigKey& key) {
  return std::visit(Reader{node, key}, key.target);
}

std::string ExpandFileAddress(std::string* address) {
  if (!absl::StartsWith(*address, kFilePrefix)) return "";
  std::string path = address->substr(std::strlen(kFilePrefix));
  std::string wrong = ExpandUserPath(&path);
  if (wrong.empty()) *address = absl::StrCat(kFilePrefix, path);
  return wrong;
}

}  // namespace dapd
