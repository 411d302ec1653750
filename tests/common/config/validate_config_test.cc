#include "common/config/validate_config.h"

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/hostile_names.h"
#include "tests/fakes/loaded_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(LoadConfigTest, ContradictionsAreNamed) {
  EXPECT_THAT(
      Message(Load(kGood, {"trainer.schedule_steps=10"})),
      AllOf(HasSubstr("trainer.steps (20) exceeds trainer.schedule_steps"),
            HasSubstr("lora.start_from")));
  EXPECT_EQ(Refusal({"trainer.schedule_steps=20"}), "");
  EXPECT_THAT(
      Refusal({"trainer.batch_size=4", "trainer.micro_batch_size=8"}),
      HasSubstr("trainer.micro_batch_size (8) exceeds trainer.batch_size (4)"));
  EXPECT_EQ(Refusal({"trainer.batch_size=4", "trainer.micro_batch_size=4"}),
            "");
  EXPECT_THAT(Refusal({"trainer.shard_base=true"}),
              HasSubstr("trainer.shard_base"));
  EXPECT_EQ(Refusal({"trainer.shard_base=true", "trainer.ranks=2"}), "");
  EXPECT_EQ(Refusal({"trainer.logits_precision=bfloat16",
                     "model.precision=bfloat16"}),
            "");
  EXPECT_THAT(
      Refusal({"trainer.logits_precision=bfloat16", "model.precision=float32"}),
      HasSubstr("trainer.logits_precision is bfloat16"));
  EXPECT_THAT(Message(Load(kGood, {"rollout.max_new_tokens=20000"})),
              HasSubstr("rollout.max_new_tokens (20000) leaves no room"));
  EXPECT_TRUE(
      Load(kGood,
           {"rollout.max_new_tokens=20000", "data.max_prompt_tokens=20001"})
          .ok());
  EXPECT_THAT(
      Refusal({"rollout.max_new_tokens=20000", "data.max_prompt_tokens=20000"}),
      HasSubstr("leaves no room"));
  EXPECT_THAT(
      Message(Load(
          kGood, {absl::StrCat("evaluation.marker=", std::string(257, 'x'))})),
      HasSubstr("evaluation.marker has 257 bytes"));
  EXPECT_EQ(
      Refusal({absl::StrCat("evaluation.marker=", std::string(256, 'x'))}), "");
  EXPECT_THAT(Message(Load(kGood, {"rollout.listen=0.0.0.0:7001"})),
              HasSubstr("security.insecure"));
  EXPECT_TRUE(
      Load(kGood, {"rollout.listen=0.0.0.0:7001", "security.insecure=true"})
          .ok());
}

TEST(LoadConfigTest, ClaimsAreMeasuredInHeldOutAnswers) {
  EXPECT_THAT(Refusal({"evaluation.claims=true"}),
              HasSubstr("evaluation.claims needs held-out problems"));
  EXPECT_THAT(Refusal({"evaluation.claims=true",
                       "evaluation.path=held_out.jsonl",
                       "evaluation.kl_problems=0"}),
              HasSubstr("evaluation.kl_problems above 0"));
  EXPECT_EQ(
      Refusal({"evaluation.claims=true", "evaluation.path=held_out.jsonl"}),
      "");
}

TEST(LoadConfigTest, OnlyAWorkerThatAnswersHasRoundedKeysAndValues) {
  const auto loaded =
      Load(kGood, {"rollout.kv_precision=float8", "model.precision=bfloat16"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(std::string(CheckTrains(loaded->config).message()),
              HasSubstr("rollout.kv_precision is float8"));
  EXPECT_THAT(
      Message(Load(kGood,
                   {"rollout.kv_precision=float8", "model.precision=float32"})),
      HasSubstr("need a model in bfloat16, and it is in float32"));
  const auto plain = Load(kGood, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(CheckTrains(plain->config).ok());
}

TEST(LoadConfigTest, GpusAreANumberOrAll) {
  for (const char* gpus : {"auto", "1", "8", "256"}) {
    EXPECT_EQ(Refusal({absl::StrCat("run.gpus=", gpus)}), "") << gpus;
  }
  for (const char* gpus : {"all", "0", "-1", "257", "1.5", "\"0,1\""}) {
    EXPECT_THAT(Refusal({absl::StrCat("run.gpus=", gpus)}),
                HasSubstr("and must be auto or a number of GPUs from 1 to 256"))
        << gpus;
  }
  RunConfig run;
  EXPECT_EQ(NumGpusAsked(run), 0);
  run.gpus = "8";
  EXPECT_EQ(NumGpusAsked(run), 8);
}

TEST(LoadConfigTest, EachTermHasANameOfItsOwn) {
  const std::string term =
      "{name: own, student: none_rollout, teacher: cross_rollout, "
      "teacher_weights: base, weight: 1, divergence: forward_kl}";
  EXPECT_EQ(Refusal({"objective.terms=[" + term + "]"}), "");
  EXPECT_THAT(Refusal({"objective.terms=[" + term + ", " + term + "]"}),
              HasSubstr("term 'own': the name occurs twice"));
}

TEST(LoadConfigTest, ATeacherSendsTheTokensThatATermTakes) {
  const auto refusal = [](const std::string& support, int64_t top_k) {
    return Refusal({"objective.support=" + support,
                    absl::StrCat("objective.top_k=", top_k),
                    "teacher.payload=top_k",
                    "teacher.top_k=64"});
  };
  EXPECT_EQ(refusal("teacher_top_k", 64), "");
  EXPECT_THAT(
      refusal("teacher_top_k", 65),
      AllOf(HasSubstr("takes the teacher's 65 most probable tokens, but a "
                      "teacher sends only 64; set teacher.top_k to 65 or more, "
                      "or objective.top_k to 64 or less."),
            HasSubstr("cannot be resumed with others: choose another "
                      "run.name as well")));
  EXPECT_THAT(Refusal({"objective.terms=[{name: own, student: none_rollout, "
                       "teacher: cross_rollout, teacher_weights: base, "
                       "weight: 1, divergence: forward_kl, "
                       "support: teacher_top_k, top_k: 65}]",
                       "teacher.payload=top_k"}),
              HasSubstr("or top_k of this term to 64 or less."));
  EXPECT_EQ(refusal("full", 65), "") << "the rest is one more entry";
  EXPECT_THAT(refusal("student_top_k", 20), HasSubstr("teacher.payload"));
  for (const auto& [preset, term] :
       {std::pair{"purified_opsd", "purified_opsd"}, {"dopd", "dopd_surer"}}) {
    EXPECT_THAT(
        Refusal({absl::StrCat("objective.preset=", preset),
                 "teacher.payload=top_k"}),
        HasSubstr(absl::StrCat(
            "term '", term, "': needs the teachers' whole distributions")));
  }
}

TEST(LoadConfigTest, ATermIsNamedByTheKeyThatItComesFrom) {
  EXPECT_THAT(
      Refusal({"objective.divergence=jensen_shannon", "objective.beta=0"}),
      HasSubstr("objective.preset: term 'entangled_rollout': beta 0 is not"));
  EXPECT_THAT(Refusal({"objective.terms=[{name: own, student: none_rollout, "
                       "teacher: cross_rollout, teacher_weights: base, "
                       "weight: 1, divergence: jensen_shannon, beta: 0}]"}),
              HasSubstr("objective.terms: term 'own': beta 0 is not"));
}

TEST(LoadConfigTest, PlaintextBeyondLoopbackNeedsAnExplicitFlag) {
  for (const char* key : {"rollout.listen",
                          "teacher.listen",
                          "trainer.listen",
                          "metrics.rollout_listen",
                          "metrics.teacher_listen",
                          "metrics.trainer_listen"}) {
    const bool is_http = absl::StartsWith(key, "metrics.");
    for (const char* host :
         {"0.0.0.0", "[::]", "10.0.0.1", "trainer", "127.0.0.1.example.org"}) {
      const std::string listen = absl::StrCat(key, "='", host, ":7001'");
      EXPECT_THAT(Refusal({listen}),
                  AllOf(HasSubstr(key),
                        HasSubstr(is_http ? "security.insecure_metrics: true"
                                          : "security.insecure: true")))
          << listen;
      EXPECT_EQ(Refusal({listen, "security.insecure=true"}), "");
      EXPECT_EQ(Refusal({listen,
                         "security.certificate=a",
                         "security.private_key=b",
                         "security.ca=c"}),
                "");
      EXPECT_EQ(Refusal({listen, "security.insecure_metrics=true"}).empty(),
                is_http);
    }
    for (const char* host : {"127.0.0.1", "127.9.9.9", "[::1]", "localhost"}) {
      EXPECT_EQ(Refusal({absl::StrCat(key, "='", host, ":7001'")}), "") << host;
    }
  }
  for (const char* key : {"rollout.addresses", "teacher.addresses"}) {
    const std::string peer = absl::StrCat(key, "=[worker:7001]");
    EXPECT_THAT(Refusal({peer}), HasSubstr("without encryption")) << peer;
    EXPECT_EQ(Refusal({peer, "security.insecure=true"}), "");
  }
  constexpr char kElsewhere[] = "trainer.rendezvous=worker:7009";
  EXPECT_THAT(Refusal({kElsewhere, "trainer.ranks=2"}),
              HasSubstr("without encryption"));
  EXPECT_EQ(Refusal({kElsewhere}), "") << "one rank meets nobody";
}

TEST(LoadConfigTest, AnAddressHasAHostAndAPortThatThereIs) {
  EXPECT_EQ(Refusal({"rollout.listen=127.0.0.1:0"}), "") << "any that is free";
  EXPECT_EQ(Refusal({"rollout.listen=127.0.0.1:65535"}), "");
  for (const char* listen : {"127.0.0.1:65536",
                             "127.0.0.1:-1",
                             ":7001",
                             "a",
                             "::1:7001",
                             "[::1:7001",
                             "::1]:7001"}) {
    EXPECT_THAT(Refusal({absl::StrCat("rollout.listen='", listen, "'")}),
                HasSubstr("is not host:port"))
        << listen;
  }
  EXPECT_EQ(Refusal({"rollout.addresses=127.0.0.1:7001"}), "");
  EXPECT_THAT(Refusal({"rollout.addresses=127.0.0.1:0"}),
              HasSubstr("is not host:port"))
      << "nobody listens at any port";
}

TEST(IsLoopbackTest, AnIPv4AddressInIPv6IsWhatItIs) {
  EXPECT_TRUE(IsLoopback("::ffff:127.0.0.1"));
  EXPECT_FALSE(IsLoopback("::ffff:10.0.0.1"));
  EXPECT_FALSE(IsLoopback("::2"));
  EXPECT_FALSE(IsLoopback("2001:db8::7f00:1"));
}

TEST(LoadConfigTest, AsManyRanksAsPartsOfAStepHaveSomethingToDo) {
  const auto refusal =
      [](int64_t batch, int64_t micro_batch, int64_t group, int64_t ranks) {
        return Refusal({absl::StrCat("trainer.batch_size=", batch),
                        absl::StrCat("trainer.micro_batch_size=", micro_batch),
                        absl::StrCat("rollout.group_size=", group),
                        absl::StrCat("trainer.ranks=", ranks)});
      };
  EXPECT_EQ(refusal(10, 4, 1, 3), "") << "the last part has two samples";
  EXPECT_THAT(refusal(10, 4, 1, 4), HasSubstr("the 3 micro-batches of a step"));
  EXPECT_EQ(refusal(24, 4, 6, 2), "") << "parts of twelve";
  EXPECT_THAT(refusal(24, 4, 6, 3), HasSubstr("the 2 parts of a step"));
  EXPECT_EQ(refusal(32, 4, 4, 8), "");
  EXPECT_EQ(Refusal({"trainer.ranks=2", "trainer.rank=1"}), "");
  EXPECT_THAT(Refusal({"trainer.ranks=2", "trainer.rank=2"}),
              HasSubstr("trainer.rank (2) counts from 0"));
}

TEST(LoadConfigTest, AnUrlThatNothingCanBePostedToIsRefused) {
  EXPECT_EQ(Refusal({"run.notify_url=https://example.org/x"}), "");
  EXPECT_EQ(Refusal({"run.notify_url=file:///run/secrets/url",
                     "run.notify_secret_file=token"}),
            "");
  EXPECT_THAT(Refusal({"run.notify_url=example.org"}),
              HasSubstr("run.notify_url"));
  EXPECT_THAT(Refusal({"run.notify_url=http://example.org/x",
                       "run.notify_secret_file=token"}),
              HasSubstr("without encryption"));
  for (const char* file : {"notify_secret_file", "notify_ca_file"}) {
    EXPECT_THAT(Refusal({absl::StrCat("run.", file, "=file")}),
                HasSubstr("run.notify_url, which is missing"));
  }
}

TEST(LoadConfigTest, ARunsNameLeadsNowhereElse) {
  Config config;
  config.model.path = "model";
  for (const std::string& name : HostileNames()) {
    config.run.name = name;
    EXPECT_THAT(FindContradictions(config),
                testing::ElementsAre(HasSubstr("run.name")))
        << name;
  }
}

TEST(LoadConfigTest, SecurityKeysThatContradictEachOtherAreNamed) {
  EXPECT_THAT(Refusal({"security.certificate=a"}), HasSubstr("all three"));
  EXPECT_THAT(Refusal({"security.certificate=a",
                       "security.private_key=b",
                       "security.ca=c",
                       "security.insecure=true"}),
              HasSubstr("leave one out"));
  for (const char* key : {"security.token",
                          "security.tokens.viewer",
                          "security.tokens.trainer",
                          "security.tokens.admin"}) {
    EXPECT_THAT(Refusal({absl::StrCat(key, "=file"), "security.insecure=true"}),
                HasSubstr("in plain text"));
  }
}

TEST(LoadConfigTest, GroupsOfAnswersHaveToBeWhole) {
  EXPECT_THAT(Message(Load(kGood, {"rollout.group_size=5"})),
              HasSubstr("trainer.batch_size (32) is not a multiple of "
                        "rollout.group_size (5)"));
  EXPECT_TRUE(Load(kGood, {"rollout.group_size=4"}).ok());
  EXPECT_THAT(
      Message(Load(kGood, {"rollout.group_size=16", "trainer.ranks=3"})),
      HasSubstr("whole groups of answers"));
}

TEST(LoadConfigTest, AnswersThatCannotDifferAreRefused) {
  for (const char* several : {"rollout.group_size=2",
                              "rollout.source=dual",
                              "rollout.source=verified"}) {
    EXPECT_THAT(Message(Load(kGood, {several, "rollout.temperature=0"})),
                HasSubstr("rollout.temperature is 0"))
        << several;
  }
  EXPECT_THAT(
      Message(Load(kGood, {"objective.preset=sdpo", "rollout.group_size=1"})),
      HasSubstr("sibling_rollout has nothing to show"));
  EXPECT_TRUE(Load(kGood,
                   {"objective.preset=sdpo",
                    "rollout.group_size=1",
                    "objective.sdpo.feedback=always"})
                  .ok());
}

TEST(LoadConfigTest, AUrlOfCopiesHoldsNoSecretAndIsOne) {
  for (const char* url :
       {"s3://bucket/runs", "gs://b", "/copies", "a/b:c", "./s3:/b"}) {
    const auto loaded = Load(kGood, {std::string("checkpoint.copy_to=") + url});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
  }
  EXPECT_THAT(Refusal({"checkpoint.copy_to=s3://key:secret@bucket/runs"}),
              HasSubstr("credentials do not belong in a URL"));
  for (const char* url : {"s3://", "s3://b?x=1", "simplecache::s3://b"}) {
    EXPECT_THAT(Refusal({std::string("checkpoint.copy_to=") + url}),
                HasSubstr("checkpoint.copy_to"));
  }
  for (const char* url : {"s3:/b/x", "s3:b/x", "ftp://b/x", "file:///x"}) {
    EXPECT_THAT(Refusal({std::string("checkpoint.copy_to=") + url}),
                HasSubstr("those begin with s3:// or gs://"));
  }
}

TEST(LoadConfigTest, ARunIsNotItsOwnCopy) {
  const std::string folder = TempPath("runs");
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(folder, folder + "-link");
  const std::string output = "run.output_dir=" + folder;
  for (const char* same : {"", "/", "/./", "-link"}) {
    EXPECT_THAT(Refusal({output, "checkpoint.copy_to=" + folder + same}),
                HasSubstr("is run.output_dir"));
  }
  EXPECT_THAT(Refusal({"run.output_dir=none", "checkpoint.copy_to=./none/"}),
              HasSubstr("is run.output_dir"));
  for (const char* other : {"/copies", "s"}) {
    EXPECT_TRUE(
        Load(kGood, {output, "checkpoint.copy_to=" + folder + other}).ok());
  }
}

TEST(WarningsOfVainKeysTest, AKeyThatIsGivenInVainIsNamedWithItsOrigin) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "model: {path: some/model}\n"
                                  "objective: {teacher_weights: base}\n")
                  .ok());
  const auto warnings = [&](const std::string& preset) {
    const auto loaded = LoadConfig(path, {"objective.preset=" + preset});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return WarningsOfVainKeys(*loaded);
  };
  const std::string where = "objective.teacher_weights (file:2) ";
  for (const char* preset : {"dapd", "sft", "sdpo"}) {
    EXPECT_THAT(warnings(preset), ElementsAre(StartsWith(where))) << preset;
  }
  EXPECT_THAT(warnings("opsd"), IsEmpty());
  EXPECT_THAT(warnings("dopd"), IsEmpty()) << "divergence is not given";
}

TEST(WarningsOfVainKeysTest, OnTheCpuNoNumberOfGpusIsUsed) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, "model: {path: some/model}\n").ok());
  const auto warnings = [&](const std::string& device) {
    const auto loaded =
        LoadConfig(path, {"model.device=" + device, "run.gpus=4"});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return WarningsOfVainKeys(*loaded);
  };
  EXPECT_THAT(warnings("cpu"),
              ElementsAre(StartsWith("run.gpus (--set) has no effect")));
  EXPECT_THAT(warnings("cuda"), IsEmpty());
}

TEST(WarningsOfVainKeysTest, GreedyAnswersAreAllTheSame) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "model: {path: some/model}\n"
                                  "evaluation: {samples: 4}\n")
                  .ok());
  const auto greedy = LoadConfig(path, {});
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  EXPECT_THAT(WarningsOfVainKeys(*greedy),
              ElementsAre(StartsWith("evaluation.samples (file:2) has no ")));
  for (const char* other :
       {"evaluation.temperature=1", "evaluation.samples=1"}) {
    EXPECT_THAT(WarningsOfVainKeys(*LoadConfig(path, {other})), IsEmpty());
  }
}

TEST(ValidateConfigTest, AGraderIsOneProgramOrOneService) {
  EXPECT_EQ(Refusal({"grader.command=[python3, grade.py, -x, -x]"}), "");
  EXPECT_EQ(Refusal({"grader.command=[]"}), "");
  EXPECT_EQ(Refusal({"grader.url=http://127.0.0.1:80/x",
                     "grader.secret_file=secret"}),
            "");
  EXPECT_THAT(Refusal({"grader.command=[a]", "grader.url=https://b"}),
              HasSubstr("both given"));
  EXPECT_THAT(Refusal({"grader.command=['', b]"}), HasSubstr("empty text"));
  EXPECT_THAT(Refusal({"grader.secret_file=secret"}),
              HasSubstr("need grader.url"));
  EXPECT_THAT(Refusal({"grader.url=example.org"}), HasSubstr("grader.url"));
  EXPECT_THAT(
      Refusal({"grader.url=http://example.org/x", "grader.secret_file=secret"}),
      HasSubstr("would send grader.secret_file without encryption"));
  EXPECT_THAT(Refusal({"grader.workers=0"}), HasSubstr("grader.workers"));
}

}  // namespace

}  // namespace dapd
