#include "common/config/preset_terms.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/config/released_prompts.h"

namespace dapd {
namespace {

using enum ViewName;
using enum WeightSet;

// Returns a term with the values that the section has for all of a preset's
// terms.
Term MakeTerm(const ObjectiveSection& section,
              const char* name,
              ViewName student,
              Target target,
              double weight) {
  return {.name = name,
          .student = student,
          .target = std::move(target),
          .divergence = {.kind = section.divergence,
                         .beta = section.beta,
                         .clip = section.component_clip},
          .support = {.kind = section.support,
                      .k = section.top_k,
                      .tail = section.tail},
          .reduction = section.reduction,
          .skip_tokens = section.skip_tokens,
          .weight = weight};
}

// Returns the pass of the section's teacher, of which it has only one here
// (ExpandTerms).
TeacherPass TeacherIn(const ObjectiveSection& section, ViewName view) {
  return PassWith(section.teacher_weights.names.front(), view);
}

std::vector<Term> DapdTerms(const ObjectiveSection& section) {
  const auto unit = [&](const ObjectiveSection::Guided& guided,
                        double fraction) {
    return section.kappa * fraction /
           (1.0 + guided.beta_inference + guided.beta_privileged);
  };
  const ObjectiveSection::Guided& reference = section.reference_guided;
  const ObjectiveSection::Guided& rollout = section.rollout_guided;
  const double r = unit(reference, section.lambda);
  const double y = unit(rollout, 1.0 - section.lambda);
  const auto term = [&](const char* name,
                        ViewName student,
                        TeacherPass teacher,
                        double weight) {
    return MakeTerm(section, name, student, teacher, weight);
  };
  const std::string& named = section.dapd.cross_weights;
  const auto cross = [&](WeightSet own, ViewName view) {
    return named.empty() ? TeacherPass{own, view} : PassWith(named, view);
  };
  return {
      term("entangled_rollout",
           kNoneRollout,
           cross(kSnapshot, kCrossRollout),
           r),
      term("inference_reference",
           kSelfReference,
           {kBase, kNoneReference},
           r * reference.beta_inference),
      term("privileged_rollout",
           kSelfRollout,
           cross(kBase, kCrossRollout),
           r * reference.beta_privileged),
      term("entangled_reference",
           kNoneReference,
           cross(kSnapshot, kCrossReference),
           y),
      term("inference_rollout",
           kSelfRollout,
           {kBase, kNoneRollout},
           y * rollout.beta_inference),
      term("privileged_reference",
           kSelfReference,
           cross(kBase, kCrossReference),
           y * rollout.beta_privileged),
  };
}

std::vector<Term> OpsdTerms(const ObjectiveSection& section) {
  return {MakeTerm(section,
                   "opsd",
                   kNoneRollout,
                   TeacherIn(section, kCrossRollout),
                   section.kappa)};
}

std::vector<Term> PrivilegedAnchorTerms(const ObjectiveSection& section) {
  return {MakeTerm(section,
                   "privileged_rollout",
                   kSelfRollout,
                   TeacherIn(section, kCrossRollout),
                   section.kappa)};
}

std::vector<Term> SdftTerms(const ObjectiveSection& section) {
  return {MakeTerm(section,
                   "sdft",
                   kNoneRollout,
                   TeacherIn(section, kDemonstrationRollout),
                   section.kappa)};
}

std::vector<Term> PurifiedOpsdTerms(const ObjectiveSection& section) {
  const ObjectiveSection::Purified& purified = section.purified;
  return {MakeTerm(section,
                   "purified_opsd",
                   kNoneRollout,
                   Mixture{.anchor = TeacherIn(section, kNoneRollout),
                           .delta = {{TeacherIn(section, kCrossRollout), 1.0},
                                     {TeacherIn(section, kProbeRollout), -1.0}},
                           .recentre = purified.recentre,
                           .soft_clip = purified.soft_clip,
                           .strength = 1.0 / purified.beta},
                   section.kappa)};
}

std::vector<Term> DopdTerms(const ObjectiveSection& section) {
  const ObjectiveSection::Dopd& dopd = section.dopd;
  Routed routed = {.first = TeacherIn(section, kCrossRollout),
                   .second = {kLive, kCrossRollout},
                   .trim = dopd.trim};
  const auto choose = [&](Regime regime, bool takes_second, double factor) {
    routed.choices[static_cast<size_t>(regime)] = {takes_second, factor};
  };
  choose(Regime::kAgreeLikely, false, dopd.likely_factor);
  choose(Regime::kAgreeUnlikely, true, dopd.unlikely_factor);
  choose(Regime::kFirstSurer, false, 0.0);
  choose(Regime::kSecondSurer, true, dopd.likely_factor);
  Term reverse =
      MakeTerm(section, "dopd_reverse", kNoneRollout, routed, section.kappa);
  reverse.divergence.kind = DivergenceKind::kReverseKl;

  for (const Regime regime :
       {Regime::kAgreeLikely, Regime::kAgreeUnlikely, Regime::kSecondSurer}) {
    choose(regime, false, 0.0);
  }
  choose(Regime::kFirstSurer, false, 1.0);
  Term surer =
      MakeTerm(section, "dopd_surer", kNoneRollout, routed, section.kappa);
  surer.divergence.kind = DivergenceKind::kJensenShannon;
  surer.support = {};
  return {reverse, surer};
}

std::vector<Term> SftTerms(const ObjectiveSection& section) {
  return {MakeTerm(section, "sft", kNoneReference, OneHot{}, section.kappa)};
}

std::vector<Term> OpdTerms(const ObjectiveSection& section) {
  return {MakeTerm(section,
                   "opd",
                   kNoneRollout,
                   TeacherIn(section, kNoneRollout),
                   section.kappa)};
}

// A step trains only one of the two terms, so both have the whole weight.
std::vector<Term> GkdTerms(const ObjectiveSection& section) {
  const double share = section.gkd.reference_share;
  std::vector<Term> terms;
  if (share < 1.0) {
    terms.push_back(MakeTerm(section,
                             "gkd",
                             kNoneRollout,
                             TeacherIn(section, kNoneRollout),
                             section.kappa));
  }
  if (share > 0.0) {
    terms.push_back(MakeTerm(section,
                             "gkd_reference",
                             kNoneReference,
                             TeacherIn(section, kNoneReference),
                             section.kappa));
  }
  return terms;
}

// Returns the terms of lasgroup/SDPO, which has micro-batches of one sample, so
// that every answer has the same weight and a masked answer counts as 0.
std::vector<Term> SdpoTerms(const ObjectiveSection& section) {
  const ObjectiveSection::Sdpo& sdpo = section.sdpo;
  Term term = MakeTerm(section,
                       "sdpo",
                       kNoneRollout,
                       TeacherPass{kEma, kSiblingRollout},
                       section.kappa);
  term.divergence.kind = sdpo.divergence;
  term.support = {
      .kind = SupportKind::kStudentTopK, .k = sdpo.top_k, .tail = true};
  term.importance = Importance::kToken;
  term.importance_cap = 2.0;
  return {term};
}

struct Preset {
  const char* name;
  std::vector<Term> (*terms)(const ObjectiveSection& section);
  std::vector<PresetDefault> defaults;
  std::vector<std::string> unread;  // UnreadKeys
};

const std::vector<Preset>& Presets() {
  static const auto& presets = *new std::vector<Preset>{
      {"dapd", DapdTerms, {}, {"objective.teacher_weights"}},
      {"opsd",
       OpsdTerms,
       {{"objective.kappa", "1"}, {"teacher.ema_start", "first_update"}}},
      {"opsd_v1",
       OpsdTerms,
       {{"objective.kappa", "1"},
        {"objective.divergence", "jensen_shannon"},
        {"objective.component_clip", ".inf"},
        {"teacher.ema_start", "first_update"},
        {"prompts.privileged", kReleasedPrivilegedOfOpsdV1},
        {"prompts.thinking", "true"},
        {"prompts.special_tokens", "false"}}},
      {"privileged_anchor",
       PrivilegedAnchorTerms,
       {{"objective.kappa", "1"}, {"teacher.ema_start", "first_update"}}},
      {"sdft",
       SdftTerms,
       {{"objective.kappa", "1"},
        {"objective.component_clip", ".inf"},
        {"objective.temperature", "1"},
        {"objective.reduction", "seq_mean_keep_masked"},
        {"objective.skip_tokens", "3"},
        {"objective.teacher_weights", "ema"},
        {"teacher.ema_rate", "0.01"},
        {"prompts.thinking", "true"},
        {"prompts.max_tokens", "1024"},
        {"prompts.truncation_side", "left"},
        {"rollout.temperature", "1"},
        {"rollout.top_p", "1"},
        {"rollout.top_k", "0"}}},
      {"purified_opsd",
       PurifiedOpsdTerms,
       {{"objective.kappa", "1"},
        {"objective.divergence", "jensen_shannon"},
        {"objective.component_clip", ".inf"}}},
      {"dopd",
       DopdTerms,
       {{"objective.kappa", "1"},
        {"objective.component_clip", ".inf"},
        {"objective.reduction", "seq_mean"},
        {"objective.support", "student_top_k"},
        {"objective.top_k", "128"},
        {"objective.tail", "false"}},
       {"objective.divergence"}},
      {"sdpo",
       SdpoTerms,
       {{"objective.kappa", "1"},
        {"objective.component_clip", ".inf"},
        {"objective.temperature", "1"},
        {"objective.reduction", "seq_mean_keep_masked"},
        {"teacher.ema_rate", "0.05"},
        {"rollout.group_size", "8"},
        {"rollout.temperature", "1"},
        {"rollout.top_p", "1"},
        {"rollout.top_k", "0"}},
       {"objective.divergence",
        "objective.support",
        "objective.top_k",
        "objective.tail",
        "objective.teacher_weights"}},
      {"sft",
       SftTerms,
       {{"objective.kappa", "1"},
        {"objective.component_clip", ".inf"},
        {"objective.temperature", "1"}},
       {"objective.teacher_weights"}},
      {"opd",
       OpdTerms,
       {{"objective.kappa", "1"},
        {"objective.divergence", "reverse_kl"},
        {"objective.component_clip", ".inf"},
        {"objective.temperature", "1"},
        {"rollout.temperature", "1"},
        {"rollout.top_p", "1"},
        {"rollout.top_k", "0"}}},
      {kGkdPreset,
       GkdTerms,
       {{"objective.kappa", "1"},
        {"objective.divergence", "jensen_shannon"},
        {"objective.component_clip", ".inf"},
        {"objective.temperature", "1"},
        {"rollout.temperature", "1"},
        {"rollout.top_p", "1"},
        {"rollout.top_k", "0"}}},
  };
  return presets;
}

const Preset& PresetOf(const std::string& name) {
  return *std::ranges::find(Presets(), name, &Preset::name);
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  return names;
}

std::vector<PresetDefault> PresetDefaults(const std::string& preset) {
  return PresetOf(preset).defaults;
}

std::vector<std::string> UnreadKeys(const std::string& preset) {
  return PresetOf(preset).unread;
}

std::vector<Term> ExpandTerms(const ObjectiveSection& section) {
  if (!section.terms.empty()) return section.terms;
  const Preset& preset = PresetOf(section.preset);
  const std::vector<std::string>& names = section.teacher_weights.names;
  const bool has_one =
      names.size() == 1 ||
      std::ranges::count(preset.unread, "objective.teacher_weights") > 0;
  if (has_one) return preset.terms(section);
  std::vector<Term> terms;
  for (const std::string& name : names) {
    ObjectiveSection of_teacher = section;
    of_teacher.teacher_weights.names = {name};
    of_teacher.kappa = section.kappa / static_cast<double>(names.size());
    for (Term& term : preset.terms(of_teacher)) {
      term.name = absl::StrCat(term.name, "_", name);
      terms.push_back(std::move(term));
    }
  }
  return terms;
}

bool StepsNeedAnswers(const Config& config) {
  return ReadsRollouts(ExpandTerms(config.objective)) ||
         config.rollout.source != ReferenceSource::kGiven;
}

bool AsksRolloutWorkers(const Config& config) {
  return StepsNeedAnswers(config) || !config.evaluation.path.empty();
}

bool AsksTeachers(const Config& config) {
  return std::ranges::any_of(TeacherPasses(ExpandTerms(config.objective)),
                             [](const TeacherPass& pass) {
                               return pass.teacher.empty() ||
                                      pass.teacher == kRowTeacher;
                             });
}

std::vector<TeacherModel> TeachersAsked(const Config& config) {
  const std::set<std::string> named =
      TeachersNamed(ExpandTerms(config.objective));
  std::vector<TeacherModel> asked;
  for (const TeacherModel& teacher : config.teachers) {
    if (named.contains(teacher.name) || named.contains(kRowTeacher)) {
      asked.push_back(teacher);
    }
  }
  return asked;
}

}  // namespace dapd
