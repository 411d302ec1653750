#include "common/config/teacher_problems.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/safe_name.h"
#include "common/config/preset_terms.h"

namespace dapd {
namespace {

constexpr size_t kMaxNameBytes = 32;

// A name is part of command lines, of terms' names and of metrics' labels.
bool IsTeacherName(const std::string& name) {
  return name.size() <= kMaxNameBytes && IsSafeName(name) &&
         !absl::StrContains(name, '.');
}

bool IsReserved(const std::string& name) {
  return name == kRowTeacher || ParseName<WeightSet>(name).has_value();
}

void CheckNames(const std::vector<TeacherModel>& teachers,
                std::vector<std::string>& problems) {
  if (teachers.size() > kMaxTeachers) {
    problems.push_back(absl::StrCat("teachers has ",
                                    teachers.size(),
                                    " entries; the limit is ",
                                    kMaxTeachers));
  }
  std::set<std::string> seen;
  for (const TeacherModel& teacher : teachers) {
    const std::string& name = teacher.name;
    if (!IsTeacherName(name)) {
      problems.push_back(
          absl::StrCat("teachers: the name '",
                       name,
                       "' is not 1 to ",
                       kMaxNameBytes,
                       " letters, digits, - and _ that do not begin with -"));
    } else if (IsReserved(name)) {
      problems.push_back(absl::StrCat("teachers: the name '",
                                      name,
                                      "' is reserved, as are ",
                                      JoinedNames<WeightSet>(),
                                      " and ",
                                      kRowTeacher,
                                      ": choose another"));
    } else if (!seen.insert(name).second) {
      problems.push_back(
          absl::StrCat("teachers: the name '", name, "' occurs twice"));
    }
  }
}

// Every worker serves one model.
void CheckAddresses(const Config& config, std::vector<std::string>& problems) {
  std::map<std::string, std::string> owners;  // by address
  for (const std::string& address : config.teacher.addresses) {
    owners[address] = "teacher.addresses";
  }
  for (const TeacherModel& teacher : config.teachers) {
    for (const std::string& address : teacher.addresses) {
      const auto [owner, is_new] =
          owners.emplace(address, absl::StrCat("teacher '", teacher.name, "'"));
      if (is_new) continue;
      problems.push_back(absl::StrCat("teachers: '",
                                      teacher.name,
                                      "': the address ",
                                      address,
                                      " also belongs to ",
                                      owner->second,
                                      ", but a worker serves only one model"));
    }
  }
}

// Returns what is wrong with a name of weights; empty if nothing is.
std::string ProblemWithWeights(const std::string& name, const Config& config) {
  if (ParseName<WeightSet>(name).has_value()) return "";
  if (name == kRowTeacher) {
    return config.data.teacher_column.empty()
               ? "row is the teacher that a row of the data names, but "
                 "data.teacher_column, the column with that name, is empty"
               : "";
  }
  if (std::ranges::count(config.teachers, name, &TeacherModel::name) > 0) {
    return "";
  }
  return absl::StrCat(
      "'",
      name,
      "' is neither a set of weights (",
      JoinedNames<WeightSet>(),
      ") nor ",
      kRowTeacher,
      " nor the name of a teacher in teachers (",
      config.teachers.empty()
          ? "which is empty"
          : absl::StrJoin(config.teachers,
                          ", ",
                          [](std::string* out, const TeacherModel& teacher) {
                            absl::StrAppend(out, teacher.name);
                          }),
      ")");
}

void CheckUses(const Config& config, std::vector<std::string>& problems) {
  for (const std::string& name : config.objective.teacher_weights.names) {
    const std::string problem = ProblemWithWeights(name, config);
    if (problem.empty()) continue;
    problems.push_back(absl::StrCat("objective.teacher_weights: ", problem));
  }
  if (const std::string& cross = config.objective.dapd.cross_weights;
      !cross.empty()) {
    const std::string problem = ProblemWithWeights(cross, config);
    if (!problem.empty()) {
      problems.push_back(
          absl::StrCat("objective.dapd.cross_weights: ", problem));
    }
  }
  for (const Term& term : config.objective.terms) {
    std::set<std::string> seen;
    for (const TeacherPass& pass : PassesOf(term.target)) {
      const std::string problem = ProblemWithWeights(WeightsText(pass), config);
      if (problem.empty() || !seen.insert(problem).second) continue;
      problems.push_back(
          absl::StrCat("objective.terms: term '", term.name, "': ", problem));
    }
  }
}

}  // namespace

std::vector<std::string> FindTeacherProblems(const Config& config) {
  std::vector<std::string> problems;
  CheckNames(config.teachers, problems);
  CheckAddresses(config, problems);
  CheckUses(config, problems);
  const Payload payload = config.teacher.payload;
  const std::set<std::string> named =
      TeachersNamed(ExpandTerms(config.objective));
  if (problems.empty() && !named.empty() && payload != Payload::kHiddenStates) {
    problems.push_back(absl::StrCat(
        "teacher.payload is ",
        NameOf(payload),
        ", but the terms read another teacher (",
        absl::StrJoin(named, ", "),
        "), and every teacher sends the same payload: only from hidden states "
        "does the trainer compute a distribution over the tokens that all "
        "models have; set teacher.payload to hidden_states"));
  }
  return problems;
}

}  // namespace dapd
