#include "common/base/command_line.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/error_output.h"
#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/user_path.h"

namespace dapd {
namespace {

// CLI11's conversions replace an integer that the type cannot hold by the
// nearest value, and no comparison with a limit refuses a NaN.
std::string HeldByInt64(const std::string& text) {
  errno = 0;
  std::strtoll(text.c_str(), nullptr, 0);
  return errno == ERANGE ? absl::StrCat("Value ", text, " has too many digits")
                         : "";
}

std::string HeldByUint64(const std::string& text) {
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 0);
  if (errno == ERANGE) {
    return absl::StrCat("Value ", text, " has too many digits");
  }
  return absl::StrContains(text, '-')
             ? absl::StrCat("Value ", text, " is negative")
             : "";
}

std::string IsFinite(const std::string& text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr))
             ? ""
             : absl::StrCat("Value ", text, " is not a finite number");
}

std::string IsPositive(const std::string& text) {
  return std::strtod(text.c_str(), nullptr) > 0
             ? ""
             : absl::StrCat("Value ", text, " is not above 0");
}

std::string IsNonNegative(const std::string& text) {
  return std::strtod(text.c_str(), nullptr) >= 0
             ? ""
             : absl::StrCat("Value ", text, " is below 0");
}

std::string IsNotEmpty(const std::string& text) {
  return text.empty() ? "The value is empty" : "";
}

// Returns the word that was given in the place of a subcommand; CLI11 says only
// that a subcommand is required; empty if no word was given.
std::string UnknownSubcommand(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
  }
  const std::vector<std::string> rest = chosen->remaining();
  if (chosen->get_require_subcommand_min() == 0 || rest.empty()) return "";
  return absl::StrCat(chosen->get_name(),
                      " has no subcommand or option '",
                      rest.front(),
                      "'; --help lists them");
}

}  // namespace

struct CommandLine::State {
  CLI::App app;
  Action chosen;
};

CommandOption& CommandOption::Required() {
  option_->required();
  return NotEmpty();
}

CommandOption& CommandOption::NotEmpty() {
  option_->check(IsNotEmpty);
  return *this;
}

CommandOption& CommandOption::Path() {
  option_->transform(CLI::Validator(
      [](std::string& text) { return ExpandUserPath(&text); }, ""));
  return *this;
}

CommandOption& CommandOption::Positive() {
  option_->check(IsPositive, "POSITIVE");
  return *this;
}

CommandOption& CommandOption::NonNegative() {
  option_->check(IsNonNegative, "NONNEGATIVE");
  return *this;
}

CommandOption& CommandOption::Range(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

CommandOption& CommandOption::Range(double min, double max) {
  // CLI11's own check takes a minimum of 1e-9 for zero.
  option_->check(
      [min, max](const std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return value >= min && value <= max
                   ? ""
                   : absl::StrCat(
                         "Value ", text, " not in range ", min, " to ", max);
      },
      absl::StrCat("FLOAT in [", min, " - ", max, "]"));
  return *this;
}

CommandOption& CommandOption::OneOf(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

CommandOption& CommandOption::Needs(const CommandOption& other) {
  option_->needs(other.option_);
  return *this;
}

CommandOption& CommandOption::FromEnvironment(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

CommandOption& CommandOption::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::TakeAll() {
  option_->take_all();
  return *this;
}

CommandOption& CommandOption::Hide() {
  option_->group("");
  return *this;
}

CommandOption Command::AddOption(const std::string& name,
                                 std::string& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help));
}

CommandOption Command::AddOption(const std::string& name,
                                 EnumVariable value,
                                 const std::string& help) {
  const auto set = [value](const std::string& text) { value.Set(text); };
  return CommandOption(app_->add_option_function<std::string>(name, set, help)
                           ->check(CLI::IsMember(value.names()))
                           ->default_str(value.Name()));
}

CommandOption Command::AddOption(const std::string& name,
                                 std::vector<std::string>& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help));
}

CommandOption Command::AddOption(const std::string& name,
                                 int& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help));
}

CommandOption Command::AddOption(const std::string& name,
                                 int64_t& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help)->check(HeldByInt64));
}

CommandOption Command::AddOption(const std::string& name,
                                 uint64_t& value,
                                 const std::string& help) {
  return CommandOption(
      app_->add_option(name, value, help)->check(HeldByUint64));
}

CommandOption Command::AddOption(const std::string& name,
                                 double& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help)->check(IsFinite));
}

CommandOption Command::AddOption(const std::string& name,
                                 std::optional<bool>& value,
                                 const std::string& help) {
  return CommandOption(app_->add_option(name, value, help));
}

CommandOption Command::AddFlag(const std::string& name,
                               bool& value,
                               const std::string& help) {
  return CommandOption(app_->add_flag(name, value, help));
}

void Command::TakeRest(std::vector<std::string>& rest) {
  app_->prefix_command();
  app_->parse_complete_callback([app = app_, &rest] {
    rest = app->remaining();
    if (rest.empty()) throw CLI::RequiredError("a program");
    // An option before the program's name would belong to this program.
    if (absl::StartsWith(rest.front(), "-")) {
      throw CLI::ExtrasError({rest.front()});
    }
  });
}

Command Command::AddSubcommand(const std::string& name,
                               const std::string& help) {
  return {app_->add_subcommand(name, help), chosen_};
}

void Command::RequireSubcommand() { app_->require_subcommand(1); }

void Command::Does(Action action) {
  app_->callback(
      [chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

CommandLine::CommandLine(std::unique_ptr<State> state)
    : Command(&state->app, &state->chosen), state_(std::move(state)) {}

CommandLine::CommandLine(const std::string& description,
                         const std::string& name)
    : CommandLine(
          std::unique_ptr<State>(new State{CLI::App(description, name), {}})) {}

CommandLine::~CommandLine() = default;

void CommandLine::AddVersionFlag(std::function<std::string()> version) {
  app_->set_version_flag("--version", std::move(version));
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream problem;
    if (app_->exit(error, std::cout, problem) == 0) return 0;
    const std::string unknown = UnknownSubcommand(*app_);
    // CLI11's message quotes arguments.
    std::istringstream lines(unknown.empty() ? problem.str() : unknown);
    for (std::string line; std::getline(lines, line);) {
      WriteErrorLine(absl::StrCat(Printable(line), "\n"));
    }
    return static_cast<int>(ExitCode::kUsage);
  }
}

absl::Status CommandLine::Run() const { return state_->chosen(); }

}  // namespace dapd
