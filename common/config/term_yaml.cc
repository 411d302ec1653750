#include "common/config/term_yaml.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/config/yaml_fields.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

Field ViewField(ViewName* target) {
  return [target](const YAML::Node& node) -> std::string {
    const auto view = ParseViewName(node.IsScalar() ? node.Scalar() : "");
    if (!view.ok()) return std::string(view.status().message());
    *target = *view;
    return "";
  };
}

// Reads the name of a set of weights or of a teacher; the names of all teachers
// are known only once the whole configuration is read.
Field WeightsField(TeacherPass* pass) {
  return [pass](const YAML::Node& node) -> std::string {
    if (!node.IsScalar() || node.Scalar().empty()) {
      return "is not the name of a set of weights or of a teacher";
    }
    const TeacherPass read = PassWith(node.Scalar(), pass->view);
    pass->weights = read.weights;
    pass->teacher = read.teacher;
    return "";
  };
}

Field Pass(TeacherPass* pass) {
  return [pass](const YAML::Node& node) {
    return ReadMap(
        node,
        {{"view", ViewField(&pass->view)}, {"weights", WeightsField(pass)}},
        {"view", "weights"});
  };
}

std::string ReadMixture(const YAML::Node& node, Mixture* mixture) {
  const Field delta = [mixture](const YAML::Node& list) -> std::string {
    if (!list.IsSequence()) return "is not a list";
    for (const YAML::Node& item : list) {
      WeightedPass part;
      const std::string problem =
          ReadMap(item,
                  {{"view", ViewField(&part.pass.view)},
                   {"weights", WeightsField(&part.pass)},
                   {"factor", NumberField(&part.factor)}},
                  {"view", "weights"});
      if (!problem.empty()) return problem;
      mixture->delta.push_back(part);
    }
    return "";
  };
  return ReadMap(node,
                 {{"anchor", Pass(&mixture->anchor)},
                  {"delta", delta},
                  {"recentre", FlagField(&mixture->recentre)},
                  {"soft_clip", LimitField(&mixture->soft_clip)},
                  {"strength", NumberField(&mixture->strength)}},
                 {"anchor", "delta"});
}

std::string ReadRouted(const YAML::Node& node, Routed* routed) {
  Fields regimes;
  for (size_t r = 0; r < kNumRegimes; ++r) {
    Routed::Choice* choice = &routed->choices[r];
    const Field pass = [choice](const YAML::Node& name) -> std::string {
      const std::string text = name.IsScalar() ? name.Scalar() : "";
      choice->takes_second = text == "second";
      return text == "first" || text == "second" ? ""
                                                 : "must be first or second";
    };
    regimes[NameOf(static_cast<Regime>(r))] = [choice,
                                               pass](const YAML::Node& map) {
      return ReadMap(
          map, {{"pass", pass}, {"factor", NumberField(&choice->factor)}}, {});
    };
  }
  return ReadMap(node,
                 {{"first", Pass(&routed->first)},
                  {"second", Pass(&routed->second)},
                  {"trim", NumberField(&routed->trim)},
                  {"regimes",
                   [&regimes](const YAML::Node& map) {
                     return ReadMap(map, regimes, {});
                   }}},
                 {"first", "second", "regimes"});
}

constexpr char kOneHot[] = "one_hot";

std::string ReadTarget(const YAML::Node& node, Target* target) {
  if (node.IsScalar() && node.Scalar() == kOneHot) {
    target->emplace<OneHot>();
    return "";
  }
  if (node.IsMap() && node["anchor"]) {
    return ReadMixture(node, &target->emplace<Mixture>());
  }
  if (node.IsMap() && node["first"]) {
    return ReadRouted(node, &target->emplace<Routed>());
  }
  return absl::StrCat(
      "neither a mixture (anchor, delta) nor routed (first, "
      "second) nor ",
      kOneHot);
}

std::string FormatPass(const TeacherPass& pass) {
  return absl::StrCat(
      "view: ", ViewNameString(pass.view), ", weights: ", WeightsText(pass));
}

const char* FormatFlag(bool flag) { return flag ? "true" : "false"; }

// Returns an empty text without importance weights: runs of earlier versions
// recorded no such field.
std::string FormatImportance(const Term& term) {
  if (term.importance == Importance::kNone) return "";
  return absl::StrCat(", importance: ",
                      NameOf(term.importance),
                      ", importance_cap: ",
                      FormatDouble(term.importance_cap));
}

struct TargetFormat {
  std::string operator()(const TeacherPass& pass) const {
    return absl::StrCat("teacher: ",
                        Quote(ViewNameString(pass.view)),
                        ", teacher_weights: ",
                        Quote(WeightsText(pass)));
  }
  std::string operator()(const Mixture& mixture) const {
    return absl::StrCat(
        "target: {anchor: {",
        FormatPass(mixture.anchor),
        "}, delta: [",
        absl::StrJoin(mixture.delta,
                      ", ",
                      [](std::string* out, const WeightedPass& part) {
                        absl::StrAppend(out,
                                        "{",
                                        FormatPass(part.pass),
                                        ", factor: ",
                                        FormatDouble(part.factor),
                                        "}");
                      }),
        "], recentre: ",
        FormatFlag(mixture.recentre),
        ", soft_clip: ",
        FormatDouble(mixture.soft_clip),
        ", strength: ",
        FormatDouble(mixture.strength),
        "}");
  }
  std::string operator()(const Routed& routed) const {
    std::vector<std::string> regimes;
    for (size_t r = 0; r < kNumRegimes; ++r) {
      const Routed::Choice& choice = routed.choices[r];
      regimes.push_back(absl::StrCat(NameOf(static_cast<Regime>(r)),
                                     ": {pass: ",
                                     choice.takes_second ? "second" : "first",
                                     ", factor: ",
                                     FormatDouble(choice.factor),
                                     "}"));
    }
    return absl::StrCat("target: {first: {",
                        FormatPass(routed.first),
                        "}, second: {",
                        FormatPass(routed.second),
                        "}, trim: ",
                        FormatDouble(routed.trim),
                        ", regimes: {",
                        absl::StrJoin(regimes, ", "),
                        "}}");
  }
  std::string operator()(const OneHot&) const {
    return absl::StrCat("target: ", kOneHot);
  }
};

}  // namespace

std::string ReadTerm(const YAML::Node& node, Term* term) {
  TeacherPass pass;
  Target made;  // of `target`
  const Fields fields = {
      {"name", TextField(&term->name)},
      {"student", ViewField(&term->student)},
      {"teacher", ViewField(&pass.view)},
      {"teacher_weights", WeightsField(&pass)},
      {"target", [&](const YAML::Node& map) { return ReadTarget(map, &made); }},
      {"divergence", NamedField(&term->divergence.kind)},
      {"beta", NumberField(&term->divergence.beta)},
      {"clip", LimitField(&term->divergence.clip)},
      {"support", NamedField(&term->support.kind)},
      {"top_k", IntegerField(&term->support.k)},
      {"tail", FlagField(&term->support.tail)},
      {"reduction", NamedField(&term->reduction)},
      {"skip_tokens", IntegerField(&term->skip_tokens)},
      {"importance", NamedField(&term->importance)},
      {"importance_cap", LimitField(&term->importance_cap)},
      {"weight", NumberField(&term->weight)}};
  const bool is_made = node.IsMap() && node["target"];
  const std::vector<std::string> required =
      is_made ? std::vector<std::string>{"name", "student", "weight"}
              : std::vector<std::string>{
                    "name", "student", "teacher", "teacher_weights", "weight"};
  const std::string problem = ReadMap(node, fields, required);
  if (!problem.empty()) return problem;
  if (is_made && (node["teacher"] || node["teacher_weights"])) {
    return "target and teacher are mutually exclusive";
  }
  term->target = is_made ? made : Target(pass);
  if (std::holds_alternative<OneHot>(term->target) && !node["clip"]) {
    term->divergence.clip = std::numeric_limits<double>::infinity();
  }
  return "";
}

std::string FormatTerm(const Term& term) {
  return absl::StrCat("{name: ",
                      Quote(term.name),
                      ", student: ",
                      Quote(ViewNameString(term.student)),
                      ", ",
                      std::visit(TargetFormat{}, term.target),
                      ", divergence: ",
                      Quote(NameOf(term.divergence.kind)),
                      ", beta: ",
                      FormatDouble(term.divergence.beta),
                      ", clip: ",
                      FormatDouble(term.divergence.clip),
                      ", support: ",
                      NameOf(term.support.kind),
                      ", top_k: ",
                      term.support.k,
                      ", tail: ",
                      FormatFlag(term.support.tail),
                      ", reduction: ",
                      NameOf(term.reduction),
                      ", skip_tokens: ",
                      term.skip_tokens,
                      FormatImportance(term),
                      ", weight: ",
                      FormatDouble(term.weight),
                      "}");
}

}  // namespace dapd
