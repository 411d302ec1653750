#include "common/config/teacher_problems.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/config_text.h"
#include "common/config/preset_terms.h"
#include "common/config/run_settings.h"
#include "common/config/validate_config.h"
#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kTwo[] =
    "teachers=[{name: big, path: m1}, {name: small, path: m2}]";

std::string TermReading(const std::string& weights) {
  return absl::StrCat(
      "objective.terms=[{name: only, student: none_rollout, teacher: "
      "none_rollout, teacher_weights: ",
      weights,
      ", weight: 1}]");
}

TEST(TeachersTest, AreReadFromTheFileTheEnvironmentAndSet) {
  const auto file = Load(
      "model: {path: m}\nteachers:\n  - name: big\n    path: ~/big\n"
      "  - {name: small, path: m2, workers: 2}\n",
      {"objective.preset=opsd", "objective.teacher_weights=[big, small]"});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->config.teachers.size(), 2u);
  EXPECT_THAT(file->config.teachers[0].path, testing::EndsWith("/big"));
  EXPECT_EQ(file->config.teachers[1].workers, 2);
  EXPECT_EQ(file->config.teachers[1].listen, "127.0.0.1:7012");
  EXPECT_EQ(file->origins.at("teachers"), "file:2");
  const auto again = Load(DumpConfig(*file));
  ASSERT_TRUE(again.ok()) << again.status() << DumpConfig(*file);
  EXPECT_EQ(again->config.teachers, file->config.teachers);
  EXPECT_EQ(again->config.objective.teacher_weights.names,
            (std::vector<std::string>{"big", "small"}));

  ASSERT_EQ(::setenv("DAPD_TEACHERS", "[{name: env, path: m3}]", 1), 0);
  const auto environment = Load(kGood);
  const auto set = Load(kGood, {kTwo});
  ASSERT_EQ(::unsetenv("DAPD_TEACHERS"), 0);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->config.teachers.at(0).name, "env");
  EXPECT_EQ(environment->origins.at("teachers"), "environment");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->config.teachers.at(0).name, "big");
}

TEST(TeachersTest, ATermMayReadATeacherOrTheTeacherOfItsRow) {
  const auto named = Load(kGood, {kTwo, TermReading("small")});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(
      std::get<TeacherPass>(ExpandTerms(named->config.objective)[0].target),
      (TeacherPass{WeightSet::kBase, ViewName::kNoneRollout, "small"}));
  EXPECT_FALSE(AsksTeachers(named->config));
  ASSERT_EQ(TeachersAsked(named->config).size(), 1u);
  EXPECT_EQ(TeachersAsked(named->config)[0].name, "small");

  const auto row =
      Load(kGood, {kTwo, TermReading("row"), "data.teacher_column=teacher"});
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_TRUE(AsksTeachers(row->config)) << "a row may name the base";
  EXPECT_EQ(TeachersAsked(row->config).size(), 2u);

  const auto own = Load(kGood, {kTwo, TermReading("snapshot")});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE(AsksTeachers(own->config));
  EXPECT_THAT(TeachersAsked(own->config), IsEmpty());
}

TEST(TeachersTest, EveryMistakeHasAMessageOfItsOwn) {
  const auto teachers = [](const std::string& list) {
    return Refusal({"teachers=[" + list + "]"});
  };
  EXPECT_THAT(teachers("{name: a, path: m}, {name: a, path: m2}"),
              HasSubstr("teachers: the name 'a' occurs twice"));
  for (const char* name : {"base", "snapshot", "ema", "live", "row"}) {
    EXPECT_THAT(teachers(absl::StrCat("{name: ", name, ", path: m}")),
                HasSubstr(absl::StrCat("the name '", name, "' is reserved")));
  }
  for (const char* name : {"''", "a.b", "-a", "a/b", "'a b'", "\u00e9"}) {
    EXPECT_THAT(teachers(absl::StrCat("{name: ", name, ", path: m}")),
                HasSubstr("is not 1 to 32 letters, digits, - and _"))
        << name;
  }
  std::string nine;
  for (int i = 0; i < 9; ++i) {
    absl::StrAppend(&nine, "{name: t", i, ", path: m}, ");
  }
  EXPECT_THAT(teachers(nine), HasSubstr("has 9 entries; the limit is 8"));
  EXPECT_THAT(teachers("{name: a, path: m, adress: x}"),
              HasSubstr("teachers: teacher 1: unknown key 'adress'"));
  EXPECT_THAT(teachers("{name: a, path: m, addresses: '127.0.0.1:7002'}"),
              AllOf(HasSubstr("the address 127.0.0.1:7002 also belongs to "
                              "teacher.addresses"),
                    HasSubstr("serves only one model")));
  EXPECT_THAT(teachers("{name: a, path: m, listen: '127.0.0.1:1'}, {name: b, "
                       "path: m, addresses: '127.0.0.1:1'}"),
              HasSubstr("also belongs to teacher 'a'"));
  EXPECT_THAT(teachers("{name: a, path: m, addresses: '10.0.0.1:1'}"),
              HasSubstr("teachers: 'a': addresses: '10.0.0.1:1' is on another "
                        "machine"));
  EXPECT_THAT(teachers("{name: a, path: m, addresses: nowhere}"),
              HasSubstr("is not host:port, nor file://PATH"));
  EXPECT_THAT(teachers("{name: a, path: m, listen: '0.0.0.0:1', addresses: "
                       "'127.0.0.1:1'}"),
              HasSubstr("teachers: 'a': listen: '0.0.0.0:1' can be reached"));
}

TEST(TeachersTest, AnUnknownTeacherIsToldTheKnownOnes) {
  EXPECT_THAT(Refusal({kTwo, TermReading("bigg")}),
              HasSubstr("objective.terms: term 'only': 'bigg' is neither a set "
                        "of weights (base, snapshot, ema, live) nor row nor "
                        "the name of a teacher in teachers (big, small)"));
  EXPECT_THAT(
      Refusal({"objective.preset=opsd", "objective.teacher_weights=[base, x]"}),
      HasSubstr("objective.teacher_weights: 'x' is neither a set of weights "
                "(base, snapshot, ema, live) nor row nor the name of a teacher "
                "in teachers (which is empty)"));
  EXPECT_THAT(Refusal({kTwo, "objective.dapd.cross_weights=bigg"}),
              HasSubstr("objective.dapd.cross_weights: 'bigg' is neither a set "
                        "of weights"));
  EXPECT_THAT(Refusal({kTwo, TermReading("row")}),
              HasSubstr("data.teacher_column, the column with that name, is "
                        "empty"));
  EXPECT_THAT(Refusal({kTwo, TermReading("big"), "teacher.payload=logits"}),
              AllOf(HasSubstr("teacher.payload is logits, but the terms read "
                              "another teacher (big)"),
                    HasSubstr("set teacher.payload to hidden_states")));
  EXPECT_EQ(Refusal({kTwo, TermReading("base"), "teacher.payload=logits"}), "");
}

TEST(TeachersTest, ATeacherThatNoTermReadsIsAWarning) {
  const auto warnings = [](const std::vector<std::string>& overrides) {
    const auto loaded = Load(kGood, overrides);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return WarningsOfVainKeys(*loaded);
  };
  EXPECT_THAT(
      warnings({kTwo, TermReading("big")}),
      ElementsAre(HasSubstr("teachers (--set): no term reads 'small'")));
  EXPECT_THAT(
      warnings({kTwo, TermReading("row"), "data.teacher_column=teacher"}),
      IsEmpty());
  EXPECT_THAT(
      warnings({TermReading("base"), "data.teacher_column=teacher"}),
      ElementsAre(HasSubstr("data.teacher_column (--set) has no effect")));
}

TEST(TeachersTest, SeveralTeachersShareTheWeightOfThePreset) {
  const auto loaded = Load(kGood,
                           {kTwo,
                            "objective.preset=opsd",
                            "objective.kappa=3",
                            "objective.teacher_weights=[big, small, base]"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<Term> terms = ExpandTerms(loaded->config.objective);
  ASSERT_EQ(terms.size(), 3u);
  for (const auto& [term, name] :
       {std::pair{terms[0], "big"}, {terms[1], "small"}, {terms[2], "base"}}) {
    EXPECT_EQ(term.name, absl::StrCat("opsd_", name));
    EXPECT_EQ(WeightsText(std::get<TeacherPass>(term.target)), name);
    EXPECT_EQ(term.weight, 1.0);
  }
  const auto dapd =
      Load(kGood, {kTwo, "objective.teacher_weights=[big, base]"});
  ASSERT_TRUE(dapd.ok()) << dapd.status();
  EXPECT_EQ(ExpandTerms(dapd->config.objective).size(), 6u)
      << "dapd has its own weights";
}

// Runs of versions without the key can still be resumed.
TEST(TeachersTest, OneTeacherIsWrittenAsItWasBeforeThereWereLists) {
  const auto loaded = Load(kGood, {"objective.teacher_weights=[snapshot]"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(ResultSettings(loaded->config).at("objective.teacher_weights"),
            "\"snapshot\"");
  const auto plain = Load(kGood, {kTwo});
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto settings = ResultSettings(plain->config);
  for (const char* key :
       {"objective.teacher_weights", "data.teacher_column", "teachers"}) {
    EXPECT_FALSE(settings.contains(key)) << key;
  }
}

}  // namespace
}  // namespace dapd
