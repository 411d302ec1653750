#include "common/data/view_limits.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/data/held_out_prompt.h"
#include "common/data/self_teacher.h"
#include "common/terms/term.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

constexpr size_t kMaxNamedRows = 10;

struct LongView {
  ViewName view = ViewName::kNoneRollout;
  int64_t tokens = 0;
  // The sampler's prompt and answer, which no term has to read.
  int64_t sampled = 0;
};

// Which of the rows are too long, as they are measured.
class LongRows {
 public:
  // The next row. `description`: of one that is too long.
  void Add(bool fits, const std::string& description) {
    fits_.push_back(fits);
    if (!fits && num_long_++ < kMaxNamedRows) {
      absl::StrAppend(&named_, "\n  ", description);
    }
  }

  // Refuses them or leaves them out of `data`, whose rows all have been added,
  // as `on_bad_row` says. `problem`: "cannot be trained: ..."; `advice`: what
  // makes them fit.
  absl::Status Settle(const std::string& path,
                      const std::string& problem,
                      const std::string& advice,
                      const std::string& on_bad_row,
                      Dataset* data) const {
    if (num_long_ == 0) return absl::OkStatus();
    const std::string named =
        absl::StrCat(named_, num_long_ > kMaxNamedRows ? "\n  ..." : "");
    const std::string what = absl::StrCat(
        path, ": ", num_long_, " of ", fits_.size(), " rows ", problem);
    const bool skips = on_bad_row == "skip";
    if (!skips || num_long_ == fits_.size()) {
      return DataError(
          absl::StrCat(what,
                       ", ",
                       advice,
                       skips ? "" : ", or skip them with data.on_bad_row: skip",
                       named));
    }
    LogWarning(absl::StrCat(what, "; left out (data.on_bad_row: skip)", named));
    std::vector<Problem> fitting;
    for (size_t i = 0; i < fits_.size(); ++i) {
      if (fits_[i]) fitting.push_back(std::move(data->problems[i]));
    }
    data->problems = std::move(fitting);
    data->skipped_rows += static_cast<int64_t>(num_long_);
    data->digest = DigestOf(data->problems);
    return absl::OkStatus();
  }

 private:
  std::vector<bool> fits_;
  size_t num_long_ = 0;
  std::string named_;  // the first few
};

class ViewMeter {
 public:
  static absl::StatusOr<ViewMeter> Make(const Config& config,
                                        const TextPipeline& text) {
    ViewMeter meter(config, text);
    meter.views_ = ViewsRead(ExpandTerms(config.objective));
    // All that stands around a problem and its reference.
    ASSIGN_OR_RETURN(const Views frame, meter.BuildShort("", "0"));
    for (const View& view : frame) {
      ASSIGN_OR_RETURN(const std::string bytes,
                       text.tokenizer->Decode(view.input_ids,
                                              /*skip_special_tokens=*/false));
      meter.frame_bytes_ = std::max(meter.frame_bytes_, Bytes(bytes));
    }
    return meter;
  }

  // A bound of Longest that costs next to nothing: no token is shorter than a
  // byte.
  int64_t AtMost(const Problem& problem) const {
    const int64_t reference = HasGivenReference() ? Bytes(problem.solution) : 0;
    return frame_bytes_ + problems_ * Bytes(problem.problem) +
           references_ * reference +
           std::min(reference, config_.objective.max_reference_tokens) +
           (1 + std::max({int64_t{1}, references_, told_})) *
               config_.rollout.max_new_tokens;
  }

  // With the longest answer. Inside a prompt its text can take a few more
  // tokens than it was sampled in.
  absl::StatusOr<LongView> Longest(const Problem& problem) const {
    const absl::StatusOr<Views> views =
        BuildShort(problem.problem, problem.solution);
    if (!views.ok()) {
      return DataError(absl::StrCat(
          problem.where, ": ", std::string(views.status().message())));
    }
    LongView longest;
    for (const ViewName view : views_) {
      const int64_t tokens = WithLongAnswer(view, *views);
      if (tokens > longest.tokens) longest = {view, tokens};
    }
    if (StepsNeedAnswers(config_)) {
      longest.sampled = WithLongAnswer(ViewName::kNoneRollout, *views);
    }
    return longest;
  }

 private:
  ViewMeter(const Config& config, const TextPipeline& text)
      : config_(config), text_(text), told_(MostAnswersTold(config)) {
    const Prompts prompts(config.prompts);
    problems_ = static_cast<int64_t>(prompts.most_problems());
    references_ = static_cast<int64_t>(prompts.most_references());
  }

  static int64_t Bytes(const std::string& text) {
    return static_cast<int64_t>(std::max(text.size(), ComposeNfc(text).size()));
  }

  bool HasGivenReference() const {
    return config_.rollout.source == "reference";
  }

  // With answers of one token: the rollout, one that stands in the reference's
  // place, and a sibling of about that.
  absl::StatusOr<Views> BuildShort(const std::string& problem,
                                   const std::string& reference) const {
    const int32_t token = text_.tokenizer->pad_id() == 0 ? 1 : 0;
    Sample sample = {"", problem, reference, {token}};
    if (!HasGivenReference()) sample.reference_ids = {token};
    if (views_.contains(ViewName::kSiblingRollout)) {
      sample.context = {.sibling = "0", .feedback = VerdictOn("")};
    }
    return text_.views->Build(sample);
  }

  int64_t WithLongAnswer(ViewName name, const Views& views) const {
    const View& view = views[static_cast<size_t>(name)];
    // Prompts show an answer as often as their templates say, at most.
    const int64_t answer = config_.rollout.max_new_tokens - 1;
    const int64_t shown = references_ * answer;
    const int64_t shown_reference = HasGivenReference() ? 0 : shown;
    const int64_t reference =
        HasGivenReference()
            ? 0
            : std::min(answer, config_.objective.max_reference_tokens - 1);
    // A prompt that shows an answer is longer by that, and is cut.
    const auto cut = [&](int64_t more) {
      return std::max(
          view.scored_from,
          std::min(view.scored_from + more, config_.data.max_prompt_tokens));
    };
    const bool appends = config_.objective.self_rollout == "append";
    switch (name) {
      case ViewName::kNoneRollout:
        return view.scored_from + view.scored_count + answer;
      case ViewName::kSelfRollout:
        return (appends ? view.scored_from + answer : cut(shown)) +
               view.scored_count + answer;
      case ViewName::kCrossRollout:
      case ViewName::kDemonstrationRollout:
      case ViewName::kProbeRollout:
        return cut(shown_reference) + view.scored_count + answer;
      case ViewName::kSiblingRollout:
        return cut(told_ * answer) + view.scored_count + answer;
      case ViewName::kNoneReference:
        return view.scored_from + view.scored_count + reference;
      case ViewName::kSelfReference:
        return cut(shown_reference) + view.scored_count + reference;
      case ViewName::kCrossReference:
        return view.scored_from + shown + view.scored_count + reference;
    }
    return 0;
  }

  const Config& config_;
  const TextPipeline& text_;
  std::set<ViewName> views_;
  int64_t frame_bytes_ = 0;
  int64_t problems_ = 1;  // in a prompt, at most
  int64_t references_ = 1;
  int64_t told_;  // to the self-teacher, in answers
};

// "rows.jsonl:12: problem 'a': cross_rollout may have 20000 tokens"
std::string Describe(const Problem& problem,
                     const LongView& longest,
                     int64_t context) {
  const std::string whose =
      absl::StrCat(problem.where, ": problem '", problem.id, "': ");
  if (longest.sampled > context) {
    return absl::StrCat(whose,
                        "the sampler's prompt and answer have up to ",
                        longest.sampled,
                        " tokens in a context of ",
                        context);
  }
  return absl::StrCat(whose,
                      ViewNameString(longest.view),
                      " has up to ",
                      longest.tokens,
                      " tokens");
}

std::string DescribeLimit(const Config& config, int64_t context) {
  return config.trainer.pack_tokens < context
             ? absl::StrCat("trainer.pack_tokens allows ",
                            config.trainer.pack_tokens,
                            " in a pass; raise it (the model's context is ",
                            context,
                            ")")
             : absl::StrCat("the model's context is ",
                            context,
                            "; shorten or remove such rows");
}

}  // namespace

absl::Status ApplyViewLimits(const Config& config,
                             int64_t context,
                             const TextPipeline& text,
                             Dataset* data) {
  const int64_t limit = std::min(context, config.trainer.pack_tokens);
  ASSIGN_OR_RETURN(const ViewMeter meter, ViewMeter::Make(config, text));
  LongRows rows;
  const auto total = static_cast<int64_t>(data->problems.size());
  Progress progress("rows measured", total);
  for (int64_t i = 0; i < total; ++i) {
    const Problem& problem = data->problems[static_cast<size_t>(i)];
    LongView longest;
    if (meter.AtMost(problem) > limit) {
      ASSIGN_OR_RETURN(longest, meter.Longest(problem));
    }
    rows.Add(longest.tokens <= limit && longest.sampled <= context,
             Describe(problem, longest, context));
    progress.Update(i + 1);
  }
  return rows.Settle(
      config.data.path,
      absl::StrCat("cannot be trained: ", DescribeLimit(config, context)),
      "lower rollout.max_new_tokens or objective.max_reference_tokens",
      config.data.on_bad_row,
      data);
}

absl::Status ApplyHeldOutLimits(const Config& config,
                                int64_t context,
                                const TextPipeline& text,
                                Dataset* held_out) {
  const int64_t answer = HeldOutAnswerTokens(config);
  LongRows rows;
  const auto total = static_cast<int64_t>(held_out->problems.size());
  Progress progress("held-out rows measured", total);
  for (int64_t i = 0; i < total; ++i) {
    const Problem& problem = held_out->problems[static_cast<size_t>(i)];
    const auto prompt = HeldOutPrompt(config, *text.views, problem.problem);
    if (!prompt.ok()) {
      return DataError(absl::StrCat(
          problem.where, ": ", std::string(prompt.status().message())));
    }
    const auto tokens = static_cast<int64_t>(prompt->size());
    rows.Add(tokens + answer <= context,
             absl::StrCat(problem.where,
                          ": problem '",
                          problem.id,
                          "': the prompt has ",
                          tokens,
                          " tokens"));
    progress.Update(i + 1);
  }
  return rows.Settle(
      config.evaluation.path,
      absl::StrCat("cannot be evaluated: with an answer of up to ",
                   answer,
                   " tokens the model's context of ",
                   context,
                   " has no room for the prompt; shorten or remove such rows"),
      "lower evaluation.max_new_tokens (0: rollout.max_new_tokens)",
      config.data.on_bad_row,
      held_out);
}

}  // namespace dapd
