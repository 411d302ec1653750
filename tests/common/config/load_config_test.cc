#include "common/config/load_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/config/config_keys.h"
#include "common/config/config_text.h"
#include "common/config/run_settings.h"
#include "common/config/validate_config.h"
#include "common/config/yaml_text.h"
#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoadConfigTest, ValuesAndTheirOriginsAreRead) {
  const auto loaded = Load(kGood, {"trainer.steps=30"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.learning_rate, 1e-5);
  EXPECT_EQ(loaded->config.trainer.steps, 30);
  EXPECT_EQ(loaded->config.objective.reference_guided.beta_inference, 0.5);
  EXPECT_EQ(loaded->origins.at("trainer.learning_rate"), "file:4");
  EXPECT_EQ(loaded->origins.at("trainer.steps"), "--set");
  EXPECT_EQ(loaded->origins.at("run.seed"), "default");
}

TEST(LoadConfigTest, TheEnvironmentStandsBetweenFileAndOverrides) {
  ::setenv("DAPD_TRAINER__STEPS", "25", 1);
  EXPECT_EQ(Load(kGood)->config.trainer.steps, 25);
  EXPECT_EQ(Load(kGood)->origins.at("trainer.steps"), "environment");
  EXPECT_EQ(Load(kGood, {"trainer.steps=26"})->config.trainer.steps, 26);
  ::unsetenv("DAPD_TRAINER__STEPS");
}

TEST(LoadConfigTest, AVariableThatMeansAKeyButIsNotReadIsRefused) {
  ::setenv("DAPD_TRAINER_BATCH_SIZE", "8", 1);
  ::setenv("DAPD_TRAINER", "8", 1);  // may belong to a script
  EXPECT_THAT(Message(Load(kGood)),
              AllOf(HasSubstr("DAPD_TRAINER_BATCH_SIZE is not read; "
                              "trainer.batch_size is "
                              "DAPD_TRAINER__BATCH_SIZE"),
                    Not(HasSubstr("DAPD_TRAINER "))));
  ::unsetenv("DAPD_TRAINER_BATCH_SIZE");
  EXPECT_TRUE(Load(kGood).ok());
  ::unsetenv("DAPD_TRAINER");
}

TEST(LoadConfigTest, AllMistakesAreReportedAtOnceWithTheirLines) {
  const std::string message = Message(
      Load("model:\n  path: x\n  presicion: float32\ntrainer:\n  steps: -1\n"
           "  batch_size: many\n"));
  EXPECT_THAT(message,
              HasSubstr(".yaml:3: unknown key model.presicion; the "
                        "nearest is model.precision"));
  EXPECT_THAT(message, HasSubstr(".yaml:5: trainer.steps: '-1'"));
  EXPECT_THAT(message, HasSubstr(".yaml:6: trainer.batch_size: 'many'"));
}

TEST(LoadConfigTest, AKeyInAnotherSectionIsTheNearest) {
  for (const auto& [given, nearest] :
       {std::pair{"learning_rate", "trainer.learning_rate"},
        std::pair{"trainer.seed", "run.seed"},
        std::pair{"rollout.batch_size", "trainer.batch_size"},
        std::pair{"lora.path", "data.path"}}) {
    EXPECT_THAT(Message(Load(kGood, {absl::StrCat(given, "=1")})),
                HasSubstr(absl::StrCat(
                    "unknown key ", given, "; the nearest is ", nearest)));
  }
}

TEST(LoadConfigTest, NoKeyIsNamedThatHasHardlyALetterOfTheGivenOne) {
  for (const char* given : {"trainer.lr", "lora.dropout", "trainer.epochs"}) {
    EXPECT_THAT(
        Message(Load(kGood, {absl::StrCat(given, "=1")})),
        HasSubstr(absl::StrCat(
            "unknown key ", given, "; dapd config-reference prints all")));
  }
  EXPECT_THAT(Message(Load(kGood, {"trainer.micro_batch=1"})),
              HasSubstr("the nearest is trainer.micro_batch_size"));
}

TEST(LoadConfigTest, WhatIsAcceptedIsSaid) {
  for (const auto& [given, accepted] :
       {std::pair{"model.deterministic=True", "boolean: true, false"},
        std::pair{"objective.component_clip=inf", "number: above 0, or .inf"},
        std::pair{"objective.purified.soft_clip=none",
                  "number: at least 1e-06, or .inf"},
        std::pair{"run.seed=-1", "integer: 0 to 18446744073709551615"}}) {
    EXPECT_THAT(Message(Load(kGood, {given})), HasSubstr(accepted)) << given;
  }
}

TEST(LoadConfigTest, HowAFlagIsWrittenIsSaid) {
  for (const char* yes : {"True", "TRUE", "yes", "On", "y", "1"}) {
    EXPECT_THAT(Message(Load(kGood, {absl::StrCat("security.insecure=", yes)})),
                HasSubstr("boolean: true, false; write true"));
  }
  for (const char* no : {"False", "no", "OFF", "0"}) {
    EXPECT_THAT(Message(Load(kGood, {absl::StrCat("security.insecure=", no)})),
                HasSubstr("boolean: true, false; write false"));
  }
}

TEST(LoadConfigTest, NothingIsNoneOfSeveralChoices) {
  for (const char* key : {"objective.preset",
                          "objective.divergence",
                          "objective.support",
                          "objective.reduction",
                          "model.precision",
                          "run.resume"}) {
    for (const char* nothing : {"", "null", "~", "''"}) {
      EXPECT_THAT(Refusal({absl::StrCat(key, "=", nothing)}),
                  HasSubstr(absl::StrCat(key, ": ")))
          << nothing;
    }
  }
  // A key that accepts any text accepts an empty text.
  EXPECT_EQ(Refusal({"evaluation.path="}), "");
}

TEST(LoadConfigTest, BrokenOrHostileYamlIsOneClearError) {
  EXPECT_THAT(Message(Load("model: [1, 2")), HasSubstr("not valid YAML"));
  EXPECT_THAT(Message(Load("a: &x [1]\nb: *x\n")), HasSubstr("anchors"));
  // Without quotes, YAML would read the text as an empty text.
  EXPECT_THAT(Message(Load("model: {path: a}\nevaluation: {marker: !wow}\n")),
              AllOf(HasSubstr(".yaml:2: not valid YAML: tags"),
                    HasSubstr("!wow; put quotes around")));
  EXPECT_EQ(Load("model: {path: a}\nevaluation: {marker: \"!wow\"}\n")
                ->config.evaluation.marker,
            "!wow");
  EXPECT_THAT(Message(Load("just text")), HasSubstr("a map of sections"));
  EXPECT_THAT(Message(Load("model: {path: m}\ntrainer: 20\n")),
              HasSubstr("config.yaml:2: trainer is a section"));
  EXPECT_EQ(ExitCodeOf(LoadConfig("/no/such/file.yaml", {}).status()),
            ExitCode::kConfig);
}

TEST(LoadConfigTest, WhatOccursTwiceIsRefusedByItsLine) {
  EXPECT_THAT(Message(Load("model:\n  path: a\n  path: b\n")),
              HasSubstr(".yaml:3: not valid YAML: path occurs twice"));
  EXPECT_THAT(Message(Load("extends: a.yaml\nmodel: {path: a}\n"
                           "extends: b.yaml\n")),
              HasSubstr(".yaml:3: not valid YAML: extends occurs twice"));
  EXPECT_THAT(Message(Load("model: {path: a}\ntrainer: {steps: 3}\n"
                           "trainer.steps: 5\n")),
              HasSubstr(".yaml:3: trainer.steps occurs twice"));
  EXPECT_THAT(Message(Load("model: {path: a}\nobjective:\n  terms:\n"
                           "    - name: only\n      name: other\n")),
              HasSubstr(".yaml:5: not valid YAML: name occurs twice"));
  EXPECT_THAT(Refusal({"objective.terms=[{name: only, name: other}]"}),
              AllOf(HasSubstr("name occurs twice"), Not(HasSubstr("quotes"))));
  // A key may occur in two maps, and two keys may have equal values.
  EXPECT_EQ(Load("model: {path: a}\ntrainer: {steps: 3}\n"
                 "evaluation: {path: a, marker: marker}\n"
                 "lora: {targets: [q_proj]}\n")
                ->config.evaluation.marker,
            "marker");
}

TEST(LoadConfigTest, TermsAreReadAndChecked) {
  const auto loaded = Load(kGood,
                           {"objective.terms=[{name: only, student: "
                            "none_rollout, teacher: cross_rollout, "
                            "teacher_weights: base, clip: .inf, weight: 1}]"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->config.objective.terms.size(), 1u);
  EXPECT_TRUE(std::isinf(loaded->config.objective.terms[0].divergence.clip));
  EXPECT_THAT(
      Message(Load(kGood,
                   {"objective.terms=[{name: odd, student: none_rollout, "
                    "teacher: cross_reference, teacher_weights: base, "
                    "weight: 1}]"})),
      HasSubstr("score different tokens"));
}

TEST(LoadConfigTest, ATermMayReadAnySetOfWeights) {
  for (const char* weights : {"base", "snapshot", "ema", "live", "newest"}) {
    const auto loaded = Load(
        "model: {path: m}\n",
        {absl::StrCat("objective.terms=[{name: a, student: none_reference, "
                      "teacher: cross_reference, teacher_weights: ",
                      weights,
                      ", weight: 1}]")});
    EXPECT_EQ(loaded.ok(), std::string(weights) != "newest")
        << weights << ": " << loaded.status();
  }
}

TEST(LoadConfigTest, APresetBringsValuesOfKeysThatNothingGives) {
  const auto plain = Load(kGood, {"objective.preset=sdpo"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->config.rollout.group_size, 8);
  EXPECT_EQ(plain->config.teacher.ema_rate, 0.05);
  EXPECT_EQ(plain->origins.at("rollout.group_size"), "preset");
  const auto given =
      Load(kGood, {"objective.preset=sdpo", "rollout.group_size=4"});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->config.rollout.group_size, 4);
  EXPECT_EQ(given->origins.at("rollout.group_size"), "--set");
  EXPECT_EQ(Load(kGood)->config.rollout.group_size, 1);
  const auto again = Load(DumpConfig(*plain));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config.teacher.ema_rate, 0.05);
}

// Gives every key a value of the wrong type or out of range, and misspells it:
// the configuration is refused, and the message names the key and its line.
TEST(LoadConfigTest, EveryMutationOfEveryKeyIsRefused) {
  Config defaults;
  int mutations = 0;
  for (const ConfigKey& key : ConfigKeys(defaults)) {
    const std::string type = TypeName(key);
    std::vector<std::string> bad = {"{a: 1}"};
    if (type == "integer" || type == "number") {
      bad.insert(bad.end(), {"text", "[1]", "1e400", "nan"});
    }
    if (type == "integer") bad.push_back("1.5");
    if (type == "boolean") bad.insert(bad.end(), {"yes", "1"});
    if (!key.choices.empty()) bad.push_back("no_such_choice");
    if (std::holds_alternative<std::vector<std::string>*>(key.target)) {
      // A command may be missing, and repeat an argument.
      if (!key.is_command) bad.insert(bad.end(), {"[]", "[a:1, a:1]"});
      bad.push_back("[[a]]");
    }
    if (std::isfinite(key.min)) {
      bad.push_back(std::to_string(static_cast<int64_t>(key.min) - 1));
      if (key.above_min) {
        bad.push_back(std::to_string(static_cast<int64_t>(key.min)));
      }
    }
    if (std::isfinite(key.max)) {
      bad.push_back(std::to_string(static_cast<int64_t>(key.max) + 1));
    }
    for (const std::string& value : bad) {
      const auto loaded = Load(kGood, {key.name + "=" + value});
      EXPECT_FALSE(loaded.ok()) << key.name << "=" << value;
      EXPECT_THAT(Message(loaded), HasSubstr(key.name));
      ++mutations;
    }
    EXPECT_THAT(Message(Load(kGood, {key.name + "x=1"})),
                HasSubstr("unknown key"));
    ++mutations;
  }
  RecordProperty("mutations", mutations);
  EXPECT_GE(mutations, 200);
}

TEST(LoadConfigTest, EveryChoiceIsReadAndShownByItsName) {
  Config defaults;
  int choices = 0;
  for (const ConfigKey& key : ConfigKeys(defaults)) {
    if (!std::holds_alternative<EnumVariable>(key.target)) continue;
    for (const std::string& choice : key.choices) {
      auto loaded = Load(kGood, {absl::StrCat(key.name, "=", choice)});
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const auto keys = ConfigKeys(loaded->config);
      const auto same = std::ranges::find(keys, key.name, &ConfigKey::name);
      EXPECT_EQ(FormatValue(*same), absl::StrCat("\"", choice, "\""))
          << key.name;
      ++choices;
    }
  }
  EXPECT_GT(choices, 50);
  // forward_kl is a divergence, but sdpo does not have it.
  EXPECT_THAT(Refusal({"objective.sdpo.divergence=forward_kl"}),
              HasSubstr("jensen_shannon, reverse_kl"));
  EXPECT_THAT(Refusal({"run.resume="}), HasSubstr("auto, never"));
}

TEST(LoadConfigTest, APresetSetsDefaultsAndOverridesNothing) {
  const auto plain = Load(kGood, {"objective.preset=sdft"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->config.objective.temperature, 1.0);
  EXPECT_EQ(plain->config.objective.skip_tokens, 3);
  EXPECT_EQ(plain->config.objective.teacher_weights.names,
            std::vector<std::string>{"ema"});
  EXPECT_EQ(plain->config.rollout.top_p, 1.0);
  EXPECT_TRUE(std::isinf(plain->config.objective.component_clip));
  EXPECT_EQ(plain->origins.at("objective.temperature"), "preset");
  EXPECT_EQ(plain->origins.at("objective.lambda"), "default");

  const auto given = Load(std::string(kGood) + "  temperature: 1.1\n",
                          {"objective.preset=sdft", "rollout.top_p=0.9"});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->config.objective.temperature, 1.1);
  EXPECT_EQ(given->config.rollout.top_p, 0.9);
  EXPECT_EQ(given->config.objective.skip_tokens, 3);

  const auto again = Load(DumpConfig(*plain));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ResultSettings(again->config), ResultSettings(plain->config));
  EXPECT_THAT(Refusal({"objective.preset=opds"}),
              testing::AllOf(HasSubstr("objective.preset: 'opds'"),
                             HasSubstr("purified_opsd")));
}

TEST(LoadConfigTest, WorkersMayBeNamedByAFile) {
  const auto loaded = Load(kGood,
                           {"rollout.addresses=file:///shared/rollouts",
                            "teacher.addresses=[127.0.0.1:7002,file://t]"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->config.rollout.addresses,
              testing::ElementsAre("file:///shared/rollouts"));
  EXPECT_EQ(AddressFilePath(loaded->config.rollout.addresses[0]),
            "/shared/rollouts");
  EXPECT_EQ(AddressFilePath("file://t"), "t");
  EXPECT_EQ(AddressFilePath("127.0.0.1:7002"), std::nullopt);
  EXPECT_FALSE(ResultSettings(loaded->config).contains("rollout.addresses"));
  EXPECT_THAT(Refusal({"rollout.addresses=file://"}),
              HasSubstr("'file://' is not host:port, nor file://PATH"));
  EXPECT_THAT(
      Refusal({"trainer.ranks=2", "trainer.rendezvous=file:///shared/meeting"}),
      HasSubstr("trainer.rendezvous: 'file:///shared/meeting'"));
}

TEST(LoadConfigTest, AMistakenPromptIsNamed) {
  EXPECT_THAT(Refusal({"prompts.privileged='{problem} only'"}),
              HasSubstr("prompts.privileged: {reference} is missing"));
  EXPECT_THAT(Refusal({"prompts.none='{question}'"}),
              HasSubstr("prompts.none: {problem} is missing"));
  EXPECT_THAT(Refusal({"prompts.system='Be brief.'", "data.system=Be brief."}),
              HasSubstr("prompts.system, data.system: both are set"));
  EXPECT_THAT(Refusal({"prompts.none=Problem: {problem}"}),
              testing::AllOf(HasSubstr("prompts.none"), HasSubstr("quotes")));
}

TEST(LoadConfigTest, ATextThatIsNoYamlIsAnsweredWithTheQuotesThatItNeeds) {
  EXPECT_THAT(Refusal({"data.path=*.jsonl"}),
              HasSubstr("around both: 'data.path=\"*.jsonl\"'"));
  EXPECT_THAT(Refusal({"prompts.none={problem} {x}"}),
              HasSubstr("prompts.none=\"{problem} {x}\""));
  EXPECT_TRUE(Load(kGood, {"data.path=\"*.jsonl\""}).ok());
  EXPECT_THAT(Refusal({"trainer.steps=*x"}), Not(HasSubstr("quotes")));
}

TEST(LoadConfigTest, ATextOfWhichYamlWouldDropSomethingNeedsQuotes) {
  for (const char* text : {"####",
                           "Answer #",
                           "!wow",
                           "! wow",
                           "%d",
                           "--- x",
                           ">",
                           "|\n",
                           "two\nlines",
                           "'a' b",
                           "\v"}) {
    EXPECT_THAT(Refusal({absl::StrCat("evaluation.marker=", text)}),
                HasSubstr("put quotes around"))
        << text;
    const std::string quoted = TextOverride("evaluation.marker", text);
    EXPECT_EQ(Load(kGood, {quoted})->config.evaluation.marker, text);
  }
  EXPECT_THAT(Refusal({"rollout.addresses=file:///a #2"}),
              HasSubstr("'rollout.addresses=\"file:///a #2\"'"));
  ::setenv("DAPD_EVALUATION__MARKER", "####", 1);
  EXPECT_THAT(Refusal({}),
              AllOf(HasSubstr("YAML takes it for ''"),
                    HasSubstr("both: DAPD_EVALUATION__MARKER='\"####\"'")));
  ::unsetenv("DAPD_EVALUATION__MARKER");
}

TEST(LoadConfigTest, ATextWithoutQuotesIsTakenAsFarAsYamlKeepsIt) {
  for (const auto& [text, marker] : {std::pair{"C#", "C#"},
                                     std::pair{" Answer is ", "Answer is"},
                                     std::pair{"'a #b' # c", "a #b"},
                                     std::pair{"|-\n  Answer #\n", "Answer #"},
                                     std::pair{" ~ ", ""},
                                     std::pair{"null", ""},
                                     std::pair{"", ""}}) {
    const auto loaded = Load(kGood, {absl::StrCat("evaluation.marker=", text)});
    ASSERT_TRUE(loaded.ok()) << text << loaded.status();
    EXPECT_EQ(loaded->config.evaluation.marker, marker);
  }
  EXPECT_EQ(Load(kGood, {"trainer.steps=3 # few"})->config.trainer.steps, 3);
}

}  // namespace
}  // namespace dapd
