#include "common/config/rank_place.h"

#include <tuple>

#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

constexpr char kOrigin[] = "trainer.machines";

}  // namespace

std::vector<std::string> PlaceRanksByMachine(LoadedConfig* loaded) {
  TrainerSection& trainer = loaded->config.trainer;
  std::vector<std::string> problems;
  if (trainer.ranks_per_machine == 0) {
    if (trainer.machines != 1 || trainer.machine != 0) {
      problems.push_back(
          "trainer.machines and trainer.machine need "
          "trainer.ranks_per_machine, which is 0: set it to the number of "
          "ranks that each machine starts");
    }
    return problems;
  }
  if (trainer.machine >= trainer.machines) {
    problems.push_back(absl::StrCat("trainer.machine (",
                                    trainer.machine,
                                    ") counts from 0 and must be below "
                                    "trainer.machines (",
                                    trainer.machines,
                                    ")"));
    return problems;
  }
  const int64_t ranks = trainer.machines * trainer.ranks_per_machine;
  const int64_t first = trainer.machine * trainer.ranks_per_machine;
  for (const auto& [key, value, due] :
       {std::tuple{"trainer.ranks", &trainer.ranks, ranks},
        std::tuple{"trainer.rank", &trainer.rank, first}}) {
    std::string& origin = loaded->origins.at(key);
    if (origin != "default" && *value != due) {
      problems.push_back(absl::StrCat(key,
                                      " (",
                                      *value,
                                      ") follows from the machines, machine ",
                                      trainer.machine,
                                      " of ",
                                      trainer.machines,
                                      " with ",
                                      trainer.ranks_per_machine,
                                      " ranks each, and would be ",
                                      due,
                                      ": leave it out"));
      continue;
    }
    if (origin == "default") origin = kOrigin;
    *value = due;
  }
  return problems;
}

std::vector<std::string> SettingsOfRank(int64_t ranks, int64_t rank) {
  return {"trainer.ranks_per_machine=0",
          "trainer.machines=1",
          "trainer.machine=0",
          absl::StrCat("trainer.ranks=", ranks),
          absl::StrCat("trainer.rank=", rank)};
}

}  // namespace dapd
