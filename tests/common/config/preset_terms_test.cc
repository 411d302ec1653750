#include "common/config/preset_terms.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/load_config.h"
#include "common/config/run_settings.h"
#include "common/config/term_yaml.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(PresetTermsTest, EveryScalesConfigurationHasThePapersWeights) {
  struct Scale {
    std::string file;
    std::vector<double> weights;  // in the order of the six terms
  };
  const std::vector<Scale> scales = {
      {"qwen3-1.7b.yaml", {.4, .4, .2, .4, .4, .2}},
      {"qwen3-4b.yaml", {2. / 15, 2. / 15, 2. / 15, .4, .4, .8}},
      {"qwen3-8b.yaml", {.1, .1, .2, .64, .64, .32}},
      {"qwen3-14b.yaml", {.1, .1, .2, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
      {"qwen3-32b.yaml", {.16, .16, .08, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
  };
  for (const Scale& scale : scales) {
    const auto loaded =
        LoadConfig(std::string(DAPD_SOURCE_DIR) + "/configs/" + scale.file, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::vector<Term> terms = ExpandTerms(loaded->config.objective);
    ASSERT_EQ(terms.size(), 6u);
    double sum = 0.0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(terms[i].weight, scale.weights[i], 1e-12)
          << scale.file << " " << terms[i].name;
      sum += terms[i].weight;
    }
    EXPECT_NEAR(sum, 2.0, 1e-12) << scale.file;
  }
}

TEST(PresetTermsTest, DapdIsTheReleasedWeightingOfSixTerms) {
  struct Expected {
    const char* name;
    ViewName student;
    TeacherPass teacher;
    double weight;
  };
  using enum ViewName;
  using enum WeightSet;
  const std::vector<Expected> table = {
      {"entangled_rollout", kNoneRollout, {kSnapshot, kCrossRollout}, 2.0 / 15},
      {"inference_reference",
       kSelfReference,
       {kBase, kNoneReference},
       2.0 / 15},
      {"privileged_rollout", kSelfRollout, {kBase, kCrossRollout}, 2.0 / 15},
      {"entangled_reference",
       kNoneReference,
       {kSnapshot, kCrossReference},
       2.0 / 5},
      {"inference_rollout", kSelfRollout, {kBase, kNoneRollout}, 2.0 / 5},
      {"privileged_reference",
       kSelfReference,
       {kBase, kCrossReference},
       4.0 / 5},
  };
  const std::vector<Term> terms = ExpandTerms(ObjectiveSection{});
  ASSERT_EQ(terms.size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Term& term = terms[i];
    EXPECT_EQ(term.name, table[i].name);
    EXPECT_EQ(term.student, table[i].student) << term.name;
    EXPECT_EQ(std::get<TeacherPass>(term.target), table[i].teacher)
        << term.name;
    EXPECT_NEAR(term.weight, table[i].weight, 1e-15) << term.name;
    EXPECT_EQ(term.divergence, Divergence()) << term.name;
    EXPECT_EQ(ProblemWith(term), "") << term.name;
  }
  EXPECT_EQ(TeacherPasses(terms).size(), 6u);
  EXPECT_EQ(StudentViews(terms).size(), 4u);
}

// Returns a configuration that sets nothing but the preset.
Config Loaded(const std::string& preset) {
  const std::string path = TempPath(preset + ".yaml");
  EXPECT_TRUE(WriteFileAtomically(path, "model: {path: m}\n").ok());
  const auto loaded = LoadConfig(path, {"objective.preset=" + preset});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded->config;
}

TEST(PresetTermsTest, EveryPresetIsSoundWithItsDefaults) {
  using enum ViewName;
  using enum WeightSet;
  for (const std::string& name : PresetNames()) {
    const Config config = Loaded(name);
    for (const Term& term : ExpandTerms(config.objective)) {
      EXPECT_EQ(ProblemWith(term), "") << name;
      if (name != "dapd") {
        EXPECT_EQ(term.weight, 1.0) << name;
      }
    }
    EXPECT_EQ(AsksRolloutWorkers(config), name != "sft") << name;
    EXPECT_EQ(AsksTeachers(config), name != "sft") << name;
  }
  const auto passes = [](const char* preset) {
    return TeacherPasses(ExpandTerms(Loaded(preset).objective));
  };
  EXPECT_EQ(passes("sdft"),
            (std::vector<TeacherPass>{{kEma, kDemonstrationRollout}}));
  EXPECT_EQ(passes("purified_opsd"),
            (std::vector<TeacherPass>{{kBase, kNoneRollout},
                                      {kBase, kCrossRollout},
                                      {kBase, kProbeRollout}}));
  EXPECT_EQ(passes("dopd"),
            (std::vector<TeacherPass>{{kBase, kCrossRollout},
                                      {kLive, kCrossRollout}}));
  EXPECT_EQ(passes("opd"), (std::vector<TeacherPass>{{kBase, kNoneRollout}}));
  EXPECT_EQ(passes("gkd"),
            (std::vector<TeacherPass>{{kBase, kNoneRollout},
                                      {kBase, kNoneReference}}));
  Config evaluated = Loaded("sft");
  evaluated.evaluation.path = "held_out.jsonl";
  EXPECT_TRUE(AsksRolloutWorkers(evaluated));
}

// Returns the weights of the terms whose weight is not 0.
std::map<std::string, double> WeightsOf(const std::string& file) {
  const auto loaded =
      LoadConfig(std::string(DAPD_SOURCE_DIR) + "/configs/" + file, {});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  std::map<std::string, double> weights;
  for (const Term& term : ExpandTerms(loaded->config.objective)) {
    if (term.weight != 0.0) weights[term.name] = term.weight;
  }
  return weights;
}

TEST(PresetTermsTest, EveryFileOfTheComparisonsIsARunOfItsOwn) {
  std::set<std::string> names;
  for (const char* folder : {"ablations", "baselines"}) {
    for (const auto& entry : std::filesystem::directory_iterator(
             std::string(DAPD_SOURCE_DIR) + "/configs/" + folder)) {
      const auto loaded = LoadConfig(entry.path(), {});
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const std::string& name = loaded->config.run.name;
      EXPECT_EQ(name, "qwen3-4b-" + entry.path().stem().string());
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(loaded->config.model.path, "models/Qwen3-4B") << name;
    }
  }
  EXPECT_GE(names.size(), 33u);
  for (const std::string& preset : PresetNames()) {
    if (preset == "dapd") continue;
    const auto loaded =
        LoadConfig(absl::StrCat(DAPD_SOURCE_DIR,
                                "/configs/baselines/",
                                absl::StrReplaceAll(preset, {{"_", "-"}}),
                                ".yaml"),
                   {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->config.objective.preset, preset);
    // Every preset trains on the same number of answers a step.
    EXPECT_EQ(loaded->config.trainer.batch_size, 32);
    EXPECT_EQ(loaded->config.rollout.group_size, preset == "sdpo" ? 8 : 1);
  }
  using Weights = std::map<std::string, double>;
  EXPECT_EQ(WeightsOf("ablations/paths-reference-entangled.yaml"),
            (Weights{{"entangled_rollout", 2.0}}));
  EXPECT_EQ(
      WeightsOf("ablations/paths-rollout-inference.yaml"),
      (Weights{{"entangled_reference", 1.0}, {"inference_rollout", 1.0}}));
  EXPECT_EQ(WeightsOf("ablations/dynamics-opsd.yaml"),
            (Weights{{"opsd", 1.0}}));
}

// Methods are compared on samples that are drawn alike, whatever their presets
// would set, and their objectives use the temperature of these samples.
void ExpectTheSamplesOf(const Config& base,
                        const Config& config,
                        const std::string& what) {
  EXPECT_EQ(config.rollout.temperature, base.rollout.temperature) << what;
  EXPECT_EQ(config.rollout.top_p, base.rollout.top_p) << what;
  EXPECT_EQ(config.rollout.top_k, base.rollout.top_k) << what;
  EXPECT_EQ(config.rollout.max_new_tokens, base.rollout.max_new_tokens) << what;
  if (!StepsNeedAnswers(config)) return;
  EXPECT_EQ(config.objective.temperature, config.rollout.temperature) << what;
}

TEST(PresetTermsTest, EveryMethodOfAComparisonHasTheSameSamples) {
  const std::string source = DAPD_SOURCE_DIR "/";
  const auto config_of = [&](const std::string& path,
                             const std::vector<std::string>& overrides) {
    const auto loaded = LoadConfig(source + path, overrides);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->config : Config();
  };
  const Config base = config_of("configs/qwen3-4b.yaml", {});
  for (const auto& entry :
       std::filesystem::directory_iterator(source + "configs/baselines")) {
    const std::string name = entry.path().filename();
    ExpectTheSamplesOf(base, config_of("configs/baselines/" + name, {}), name);
  }
  for (const char* name :
       {"methods", "laboratory-methods", "laboratory-rates"}) {
    const YAML::Node sweep =
        YAML::LoadFile(absl::StrCat(source, "configs/sweeps/", name, ".yaml"));
    const auto path = sweep["config"].as<std::string>();
    for (const auto& row : sweep["list"]) {
      std::vector<std::string> overrides;
      if (row["set"]) {
        for (const auto& entry : row["set"]) {
          overrides.push_back(absl::StrCat(entry.first.as<std::string>(),
                                           "=",
                                           entry.second.as<std::string>()));
        }
      }
      ExpectTheSamplesOf(
          config_of(path, {}),
          config_of(path, overrides),
          absl::StrCat(name, ", ", row["name"].as<std::string>()));
    }
  }
}

TEST(PresetTermsTest, TheSectionsFieldsAreThoseOfAllTerms) {
  ObjectiveSection section = Loaded("opsd").objective;
  section.divergence = DivergenceKind::kReverseKl;
  section.support = SupportKind::kTeacherTopK;
  section.top_k = 7;
  section.tail = false;
  section.reduction = Reduction::kSeqMean;
  section.skip_tokens = 2;
  section.teacher_weights.names = {"snapshot"};
  const Term term = ExpandTerms(section).at(0);
  EXPECT_EQ(term.divergence.kind, DivergenceKind::kReverseKl);
  EXPECT_EQ(term.support, (Support{SupportKind::kTeacherTopK, 7, false}));
  EXPECT_EQ(term.reduction, Reduction::kSeqMean);
  EXPECT_EQ(term.skip_tokens, 2);
  EXPECT_EQ(std::get<TeacherPass>(term.target).weights, WeightSet::kSnapshot);
}

TEST(PresetTermsTest, AKeyIsUnreadExactlyWhereItChangesNoTerm) {
  using Change = void (*)(ObjectiveSection & section);
  const std::map<std::string, Change> changes = {
      {"divergence",
       [](auto& section) {
         section.divergence = section.divergence == DivergenceKind::kReverseKl
                                  ? DivergenceKind::kForwardKl
                                  : DivergenceKind::kReverseKl;
       }},
      {"component_clip", [](auto& section) { section.component_clip = 0.5; }},
      {"support",
       [](auto& section) { section.support = SupportKind::kTeacherTopK; }},
      {"top_k", [](auto& section) { section.top_k = 7; }},
      {"tail", [](auto& section) { section.tail = !section.tail; }},
      {"reduction",
       [](auto& section) {
         section.reduction = Reduction::kSeqMeanKeepMasked;
       }},
      {"skip_tokens", [](auto& section) { section.skip_tokens = 2; }},
      {"teacher_weights",
       [](auto& section) { section.teacher_weights.names = {"snapshot"}; }},
  };
  const auto terms_of = [](const ObjectiveSection& section) {
    std::vector<std::string> terms;
    for (const Term& term : ExpandTerms(section)) {
      terms.push_back(FormatTerm(term));
    }
    return terms;
  };
  for (const std::string& preset : PresetNames()) {
    ObjectiveSection section = Loaded(preset).objective;
    // Without these two settings no term would have a number of tokens, and
    // sdpo's reduction would apply.
    section.support = SupportKind::kStudentTopK;
    section.reduction = Reduction::kMicroToken;
    std::set<std::string> unread;
    for (const auto& [key, change] : changes) {
      ObjectiveSection changed = section;
      change(changed);
      if (terms_of(changed) == terms_of(section)) {
        unread.insert("objective." + key);
      }
    }
    const std::vector<std::string> expected = UnreadKeys(preset);
    EXPECT_EQ(unread, std::set(expected.begin(), expected.end())) << preset;
  }
}

// Each token belongs to exactly one of dopd's two terms.
TEST(PresetTermsTest, DopdsTermsShareTheRegimes) {
  const std::vector<Term> terms = ExpandTerms(Loaded("dopd").objective);
  ASSERT_EQ(terms.size(), 2u);
  std::vector<double> factors;
  for (size_t r = 0; r < kNumRegimes; ++r) {
    const auto& reverse = std::get<Routed>(terms[0].target).choices[r];
    const auto& surer = std::get<Routed>(terms[1].target).choices[r];
    EXPECT_EQ(reverse.factor * surer.factor, 0.0);
    factors.push_back(reverse.factor + surer.factor);
  }
  EXPECT_EQ(factors, (std::vector<double>{0.6, 0.3, 1.0, 0.6}));
}

// The form of Thinking Machines' and Qwen3's on-policy distillation, with the
// gradient of the whole vocabulary.
TEST(PresetTermsTest, OpdIsTheReverseKlOnUnfilteredAnswers) {
  const Config config = Loaded("opd");
  EXPECT_EQ(config.rollout.temperature, 1.0);
  EXPECT_EQ(config.rollout.top_p, 1.0);
  EXPECT_EQ(config.rollout.top_k, 0);
  EXPECT_EQ(config.objective.temperature, 1.0);
  ObjectiveSection section = config.objective;
  section.teacher_weights.names = {"big"};
  const std::vector<Term> terms = ExpandTerms(section);
  ASSERT_EQ(terms.size(), 1u);
  EXPECT_EQ(terms[0].student, ViewName::kNoneRollout);
  EXPECT_EQ(std::get<TeacherPass>(terms[0].target),
            (TeacherPass{WeightSet::kBase, ViewName::kNoneRollout, "big"}));
  EXPECT_EQ(terms[0].divergence.kind, DivergenceKind::kReverseKl);
  EXPECT_EQ(terms[0].divergence.clip, kNoClip);
  EXPECT_EQ(terms[0].support, Support());
}

// A step trains one kind of completion, so no weight is split between the
// kinds; between the teachers it is.
TEST(PresetTermsTest, GkdsTermsOfSeveralTeachersShareTheWeight) {
  ObjectiveSection section = Loaded("gkd").objective;
  section.teacher_weights.names = {"big", "row"};
  const std::vector<Term> terms = ExpandTerms(section);
  std::vector<std::string> names;
  for (const Term& term : terms) {
    names.push_back(term.name);
    EXPECT_EQ(term.weight, 0.5);
    EXPECT_EQ(term.divergence,
              (Divergence{DivergenceKind::kJensenShannon, 0.5, kNoClip}));
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "gkd_big", "gkd_reference_big", "gkd_row", "gkd_reference_row"}));
}

// The larger teacher of DOPD's paper; the privileged student stays the live
// model.
TEST(PresetTermsTest, DopdsTeacherMayBeAnotherModel) {
  ObjectiveSection section = Loaded("dopd").objective;
  section.teacher_weights.names = {"big"};
  for (const Term& term : ExpandTerms(section)) {
    const auto& routed = std::get<Routed>(term.target);
    EXPECT_EQ(routed.first,
              (TeacherPass{WeightSet::kBase, ViewName::kCrossRollout, "big"}));
    EXPECT_EQ(routed.second,
              (TeacherPass{WeightSet::kLive, ViewName::kCrossRollout}));
  }
}

// The six terms of docs/teachers.md with the weights of the 4B model.
TEST(PresetTermsTest, DapdsCrossViewsMayBeReadByAnotherModel) {
  const std::string path = TempPath("dapd_cross.yaml");
  ASSERT_TRUE(WriteFileAtomically(
                  path, "model: {path: m}\nteachers: [{name: big, path: b}]\n")
                  .ok());
  const auto term = [](const char* name,
                       const char* student,
                       const char* teacher,
                       const char* weights,
                       const char* weight) {
    return absl::StrCat("{name: ",
                        name,
                        ", student: ",
                        student,
                        ", teacher: ",
                        teacher,
                        ", teacher_weights: ",
                        weights,
                        ", weight: ",
                        weight,
                        "}, ");
  };
  const std::string r = "0.13333333333333333";
  const std::string terms = absl::StrCat(
      "objective.terms=[",
      term("entangled_rollout",
           "none_rollout",
           "cross_rollout",
           "big",
           r.c_str()),
      term("inference_reference",
           "self_reference",
           "none_reference",
           "base",
           r.c_str()),
      term("privileged_rollout",
           "self_rollout",
           "cross_rollout",
           "big",
           r.c_str()),
      term("entangled_reference",
           "none_reference",
           "cross_reference",
           "big",
           "0.4"),
      term("inference_rollout", "self_rollout", "none_rollout", "base", "0.4"),
      term("privileged_reference",
           "self_reference",
           "cross_reference",
           "big",
           "0.8"),
      "]");
  const auto written = LoadConfig(path, {terms});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto preset = LoadConfig(path, {"objective.dapd.cross_weights=big"});
  ASSERT_TRUE(preset.ok()) << preset.status();
  const std::vector<Term> expected = ExpandTerms(written->config.objective);
  std::vector<Term> found = ExpandTerms(preset->config.objective);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].weight, expected[i].weight, 1e-15);
    found[i].weight = expected[i].weight;
    EXPECT_EQ(FormatTerm(found[i]), FormatTerm(expected[i]));
  }
  EXPECT_TRUE(AsksTeachers(preset->config));
  EXPECT_EQ(TeachersAsked(preset->config).size(), 1u);
  EXPECT_FALSE(ResultSettings(LoadConfig(path, {})->config)
                   .contains("objective.dapd.cross_weights"))
      << "runs of versions without the key can be resumed";
}

TEST(PresetTermsTest, SdpoIsOneTermAgainstTheMovingAverage) {
  const Config config = Loaded("sdpo");
  // lasgroup/SDPO samples at temperature 1 without a filter, and divides the
  // logits of its loss by that temperature.
  EXPECT_EQ(config.rollout.temperature, 1.0);
  EXPECT_EQ(config.rollout.top_p, 1.0);
  EXPECT_EQ(config.rollout.top_k, 0);
  EXPECT_EQ(config.objective.temperature, 1.0);
  ObjectiveSection section = config.objective;
  std::vector<Term> terms = ExpandTerms(section);
  ASSERT_EQ(terms.size(), 1u);
  const Term& term = terms[0];
  EXPECT_EQ(ProblemWith(term), "");
  EXPECT_EQ(term.student, ViewName::kNoneRollout);
  EXPECT_EQ(std::get<TeacherPass>(term.target),
            (TeacherPass{WeightSet::kEma, ViewName::kSiblingRollout}));
  EXPECT_EQ(term.divergence,
            (Divergence{DivergenceKind::kJensenShannon, 0.5, kNoClip}));
  EXPECT_EQ(term.support, (Support{SupportKind::kStudentTopK, 100, true}));
  EXPECT_EQ(term.reduction, Reduction::kSeqMeanKeepMasked);
  EXPECT_EQ(term.importance, Importance::kToken);
  EXPECT_EQ(term.importance_cap, 2.0);
  EXPECT_EQ(term.weight, 1.0);
  section.sdpo = {.divergence = DivergenceKind::kReverseKl, .top_k = 20};
  terms = ExpandTerms(section);
  EXPECT_EQ(terms[0].divergence.kind, DivergenceKind::kReverseKl);
  EXPECT_EQ(terms[0].support.k, 20);
}

TEST(PresetTermsTest, GivenTermsReplaceThePreset) {
  ObjectiveSection section;
  section.terms = {{.name = "mine", .weight = 3.0}};
  ASSERT_EQ(ExpandTerms(section).size(), 1u);
  EXPECT_EQ(ExpandTerms(section)[0].name, "mine");
}

}  // namespace
}  // namespace dapd
