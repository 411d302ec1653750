// The command line of a program: its options, flags and subcommands, with help
// texts. CLI11 does the work; only command_line.cc includes it, because its
// headers cost more to compile than most files that declare an option.
//
//   CommandLine line("Adds numbers.");
//   line.AddOption("--count", count, "how many").Required().Positive();
//   if (const auto code = line.Parse(argc, argv)) return *code;
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/enum_names.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dapd {

// An option that was declared: a handle, valid as long as its CommandLine.
class CommandOption {
 public:
  // Must be given, and not as an empty text: it is a file, say, or an address,
  // and a message about an empty one would name nothing.
  CommandOption& Required();
  // May be left out, but not given as an empty text, as by a script whose
  // variable is not set: it would count as left out.
  CommandOption& NotEmpty();
  // A path: "~" stands for the home folder, and what user_path.h refuses is
  // refused.
  CommandOption& Path();
  CommandOption& Positive();
  CommandOption& NonNegative();
  CommandOption& Range(int min, int max);
  CommandOption& Range(double min, double max);
  CommandOption& OneOf(std::vector<std::string> values);
  // Only together with `other`.
  CommandOption& Needs(const CommandOption& other);
  // The environment's `variable` stands for an option that is not given.
  CommandOption& FromEnvironment(const std::string& variable);
  CommandOption& ShowDefault();
  // Given several times, a list takes all values.
  CommandOption& TakeAll();
  // Not in the help text.
  CommandOption& Hide();

 private:
  friend class Command;
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// A program or one of its subcommands: a handle, valid as long as its
// CommandLine.
class Command {
 public:
  // What a subcommand does once the command line is parsed. The exit code of
  // the program is ExitCodeOf its Status.
  using Action = std::function<absl::Status()>;

  // `name` is "--long", or "name" for one that is given by its position.
  // `value` must outlive Parse(); it is its own default. A number that the
  // type of `value` cannot hold, an infinite one and NaN are refused.
  CommandOption AddOption(const std::string& name,
                          std::string& value,
                          const std::string& help = "");
  // A value of an enum, by its name.
  CommandOption AddOption(const std::string& name,
                          EnumVariable value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          std::vector<std::string>& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          int& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          int64_t& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          uint64_t& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          double& value,
                          const std::string& help = "");
  CommandOption AddOption(const std::string& name,
                          std::optional<bool>& value,
                          const std::string& help = "");
  CommandOption AddFlag(const std::string& name,
                        bool& value,
                        const std::string& help = "");

  // All that stands behind the command, options too, becomes `rest`, which must
  // outlive Parse(): the command line of another program. At least one word, of
  // which the first is no option.
  void TakeRest(std::vector<std::string>& rest);

  Command AddSubcommand(const std::string& name, const std::string& help);
  void RequireSubcommand();
  // What CommandLine::Run does if the user chose this command.
  void Does(Action action);

 protected:
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}
  CLI::App* app_;
  Action* chosen_;
};

class CommandLine : public Command {
 public:
  // An empty `name`: the program's, as it was called.
  explicit CommandLine(const std::string& description,
                       const std::string& name = "");
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // Prints what `version` returns, and ends.
  void AddVersionFlag(std::function<std::string()> version);

  // Fills the values. An exit code if the program is to end: 0 after it printed
  // its help or version, ExitCode::kUsage after it said on stderr what is
  // wrong.
  std::optional<int> Parse(int argc, char** argv);

  // The action of the chosen subcommand; after Parse().
  absl::Status Run() const;

 private:
  struct State;
  explicit CommandLine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
