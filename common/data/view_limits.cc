#include "common/data/view_limits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/data/cut_prompts.h"
#include "common/data/dataset.h"
#include "common/data/held_out_prompt.h"
#include "common/data/material_meter.h"
#include "common/data/self_teacher.h"
#include "common/data/template_support.h"
#include "common/terms/term.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

constexpr size_t kMaxNamedRows = 10;

// Counts the rows of a data set that a run cannot use while they are measured,
// and then refuses or removes them.
class UnfitRows {
 public:
  // Adds the next row. `description` describes a row that does not fit.
  void Add(bool fits, const std::string& description);

  // Handles the unfit rows of `data`; all of its rows must have been added. As
  // `on_bad_row` (data.on_bad_row) says, it returns an error (exit code kData),
  // or removes the rows, counts them in skipped_rows and logs a warning. It
  // returns the error also if no row would remain. The message names the first
  // few rows. `problem` is a text such as "cannot be trained: ..."; `advice`
  // says what makes the rows fit.
  absl::Status Settle(const std::string& path,
                      const std::string& problem,
                      const std::string& advice,
                      OnBadRow on_bad_row,
                      Dataset* data) const;

 private:
  std::vector<bool> fits_;
  size_t num_unfit_ = 0;
  std::string named_;
};

void UnfitRows::Add(bool fits, const std::string& description) {
  fits_.push_back(fits);
  if (!fits && num_unfit_++ < kMaxNamedRows) {
    absl::StrAppend(&named_, "\n  ", description);
  }
}

absl::Status UnfitRows::Settle(const std::string& path,
                               const std::string& problem,
                               const std::string& advice,
                               OnBadRow on_bad_row,
                               Dataset* data) const {
  if (num_unfit_ == 0) return absl::OkStatus();
  const std::string named =
      absl::StrCat(named_, num_unfit_ > kMaxNamedRows ? "\n  ..." : "");
  const std::string what = absl::StrCat(
      path, ": ", num_unfit_, " of ", fits_.size(), " rows ", problem);
  const bool skips = on_bad_row == OnBadRow::kSkip;
  if (!skips || num_unfit_ == fits_.size()) {
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
  data->skipped_rows += static_cast<int64_t>(num_unfit_);
  data->digest = DigestOf(data->problems);
  return absl::OkStatus();
}

struct LongView {
  ViewName view = ViewName::kNoneRollout;
  int64_t tokens = 0;
  // Tokens of the sampler's prompt and answer; no term needs to read this view.
  int64_t sampled = 0;
};

// Returns the first of `ids` that the model does not have.
std::optional<int32_t> FirstForeignId(const std::vector<int32_t>& ids,
                                      const TextPipeline& text) {
  const auto found = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return id >= text.vocab_size;
  });
  return found == ids.end() ? std::nullopt : std::optional<int32_t>(*found);
}

class ViewMeter {
 public:
  static absl::StatusOr<ViewMeter> Make(const Config& config,
                                        const TextPipeline& text) {
    ViewMeter meter(config, text);
    meter.views_ = ViewsRead(ExpandTerms(config.objective));
    // `frame` has the text of all templates around a problem and its reference.
    ASSIGN_OR_RETURN(const Views frame, meter.BuildShort("", "0", nullptr));
    for (const View& view : frame) {
      ASSIGN_OR_RETURN(const std::string bytes,
                       text.tokenizer->Decode(view.input_ids,
                                              /*skip_special_tokens=*/false));
      meter.frame_bytes_ = std::max(meter.frame_bytes_, MostTokens(bytes));
    }
    return meter;
  }

  // Returns an upper bound of Longest at next to no cost: every token has at
  // least one byte.
  absl::StatusOr<int64_t> AtMost(const Problem& problem,
                                 MaterialMeter& materials) const {
    ASSIGN_OR_RETURN(const int64_t material, materials.MostTokens(problem));
    const int64_t reference =
        HasGivenReference() ? MostTokens(problem.solution) : 0;
    return frame_bytes_ + material + problems_ * MostTokens(problem.problem) +
           references_ * reference +
           std::min(reference, config_.objective.max_reference_tokens) +
           (1 + std::max({int64_t{1}, references_, told_})) *
               config_.rollout.max_new_tokens +
           feedback_bytes_;
  }

  // Assumes the longest answer. Inside a prompt its text can take more tokens
  // than were sampled; the prompt is cut then (ViewOptions::max_view).
  absl::StatusOr<LongView> Longest(const Problem& problem) const {
    ASSIGN_OR_RETURN(const Views views, BuildShort(problem));
    LongView longest;
    for (const ViewName view : views_) {
      const int64_t tokens = WithLongAnswer(view, views);
      if (tokens > longest.tokens) longest = {view, tokens};
    }
    if (StepsNeedAnswers(config_)) {
      longest.sampled = WithLongAnswer(ViewName::kNoneRollout, views);
    }
    return longest;
  }

  // Returns an id that this problem sends to the model and that the model does
  // not have, if there is one.
  absl::StatusOr<std::optional<int32_t>> ForeignId(
      const Problem& problem) const {
    ASSIGN_OR_RETURN(const Views views, BuildShort(problem));
    std::set<ViewName> sent = views_;
    if (StepsNeedAnswers(config_)) sent.insert(ViewName::kNoneRollout);
    for (const ViewName view : sent) {
      const std::vector<int32_t>& ids =
          views[static_cast<size_t>(view)].input_ids;
      const std::optional<int32_t> foreign = FirstForeignId(ids, text_);
      if (foreign.has_value()) return foreign;
    }
    return std::nullopt;
  }

 private:
  ViewMeter(const Config& config, const TextPipeline& text)
      : config_(config),
        text_(text),
        builder_(*text.tokenizer, *text.chat_template, MakeViewOptions(config)),
        longest_prompt_(MakeViewOptions(config).max_prompt),
        told_(MostAnswersTold(config)),
        feedback_bytes_(MostFeedbackTold(config)) {
    const Prompts prompts(config.prompts);
    problems_ = static_cast<int64_t>(prompts.most_problems());
    references_ = static_cast<int64_t>(prompts.most_references());
  }

  bool HasGivenReference() const {
    return config_.rollout.source == ReferenceSource::kGiven;
  }

  // Builds views with answers of one token: the rollout, an answer in place of
  // the reference, and a sibling of about one token.
  absl::StatusOr<Views> BuildShort(
      const std::string& problem,
      const std::string& reference,
      std::shared_ptr<const RowMaterial> material) const {
    const int32_t token = text_.tokenizer->pad_id() == 0 ? 1 : 0;
    Sample sample = {"", problem, reference, {token}};
    sample.material = std::move(material);
    if (!HasGivenReference()) sample.reference_ids = {token};
    if (views_.contains(ViewName::kSiblingRollout)) {
      sample.context = {.sibling = "0",
                        .feedback = LongestFeedback(sample.source().columns())};
    }
    return builder_.Build(sample);
  }

  // Returns the longest feedback on a result of one character.
  std::string LongestFeedback(const PromptColumns& columns) const {
    const Prompts& prompts = builder_.prompts();
    std::string longest;
    for (const std::string& feedback :
         {prompts.Feedback(false, "0", false, columns),
          prompts.Feedback(false, "", false, columns),
          prompts.Feedback(false, "", true, columns)}) {
      if (feedback.size() > longest.size()) longest = feedback;
    }
    return longest;
  }

  absl::StatusOr<Views> BuildShort(const Problem& problem) const {
    absl::StatusOr<Views> views =
        BuildShort(problem.problem, problem.solution, problem.material);
    if (views.ok()) return views;
    return RowError(problem, views.status());
  }

  int64_t WithLongAnswer(ViewName name, const Views& views) const {
    const View& view = views[static_cast<size_t>(name)];
    // A prompt shows an answer at most as often as its template does.
    const int64_t answer = config_.rollout.max_new_tokens - 1;
    const int64_t shown = references_ * answer;
    const int64_t shown_reference = HasGivenReference() ? 0 : shown;
    const int64_t reference =
        HasGivenReference()
            ? 0
            : std::min(answer, config_.objective.max_reference_tokens - 1);
    // A prompt that shows an answer is longer by the answer, and is cut.
    const auto cut = [&](int64_t more) {
      return std::max(view.scored_from,
                      std::min(view.scored_from + more, longest_prompt_));
    };
    const bool appends = config_.objective.self_rollout == SelfRollout::kAppend;
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
        return cut(told_ * answer + feedback_bytes_) + view.scored_count +
               answer;
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
  // The pipeline's builder would cut prompts that do not fit the model's
  // context.
  ViewBuilder builder_;
  int64_t longest_prompt_;  // longest prompt in front of a rollout, in tokens
  std::set<ViewName> views_;
  int64_t frame_bytes_ = 0;
  int64_t problems_ = 1;  // most occurrences of the problem in a prompt
  int64_t references_ = 1;
  int64_t told_;            // number of answers shown to the self-teacher
  int64_t feedback_bytes_;  // most bytes of a grader's feedback shown to it
};

// Returns a text such as "rows.jsonl:12: problem 'a': cross_rollout has up to
// 20000 tokens ...".
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

// Returns a text such as "rows.jsonl:12: problem 'a': '[PAD]' has id 151669".
absl::StatusOr<std::string> DescribeForeignId(const Problem& problem,
                                              int32_t id,
                                              const TextPipeline& text) {
  ASSIGN_OR_RETURN(const std::string token,
                   text.tokenizer->Decode({id}, /*skip_special_tokens=*/false));
  return absl::StrCat(
      problem.where, ": problem '", problem.id, "': '", token, "' has id ", id);
}

using FindForeignId =
    std::function<absl::StatusOr<std::optional<int32_t>>(const Problem&)>;

// Refuses or removes the rows of `path` in which `find` finds an id. `verb` is
// "trained" or "evaluated".
absl::Status ApplyVocabulary(const Config& config,
                             const std::string& path,
                             const std::string& verb,
                             const TextPipeline& text,
                             const FindForeignId& find,
                             Dataset* data) {
  if (text.tokenizer->size() <= text.vocab_size) return absl::OkStatus();
  UnfitRows rows;
  const auto total = static_cast<int64_t>(data->problems.size());
  Progress progress("rows compared with the model's vocabulary", total);
  for (int64_t i = 0; i < total; ++i) {
    const Problem& problem = data->problems[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(const std::optional<int32_t> id, find(problem));
    std::string description;
    if (id.has_value()) {
      ASSIGN_OR_RETURN(description, DescribeForeignId(problem, *id, text));
    }
    rows.Add(!id.has_value(), description);
    progress.Update(i + 1);
  }
  return rows.Settle(path,
                     absl::StrCat("cannot be ",
                                  verb,
                                  ": the tokenizer gives them ids outside the "
                                  "model's vocabulary, whose size is ",
                                  text.vocab_size),
                     "use the tokenizer that the model was trained with",
                     config.data.on_bad_row,
                     data);
}

// Refuses or removes the rows of `path` whose conversations the chat template
// does not render, or whose system message or tools it does not show. A problem
// alone is always rendered.
absl::Status ApplyTemplate(const std::string& path,
                           const TextPipeline& text,
                           OnBadRow on_bad_row,
                           MaterialMeter& materials,
                           Dataset* data) {
  const absl::Status shows_system = CheckShowsSystem(*text.chat_template);
  const absl::Status shows_tools = CheckShowsTools(*text.chat_template);
  UnfitRows rows;
  for (const Problem& problem : data->problems) {
    absl::Status status;
    if (problem.material != nullptr) {
      if (problem.material->system.has_value()) status.Update(shows_system);
      if (!problem.material->tools.empty()) status.Update(shows_tools);
      if (status.ok()) {
        status = materials.ConversationTokens(problem).status();
      }
    }
    rows.Add(status.ok(),
             absl::StrCat(problem.where,
                          ": problem '",
                          problem.id,
                          "': ",
                          std::string(status.message())));
  }
  return rows.Settle(path,
                     "cannot become prompts",
                     "use a model whose chat template takes such conversations",
                     on_bad_row,
                     data);
}

}  // namespace

absl::Status ApplyViewLimits(const Config& config,
                             int64_t context,
                             const TextPipeline& text,
                             Dataset* data) {
  const int64_t limit = std::min(context, config.trainer.pack_tokens);
  ASSIGN_OR_RETURN(const ViewMeter meter, ViewMeter::Make(config, text));
  MaterialMeter materials(*text.views);
  RETURN_IF_ERROR(ApplyTemplate(
      config.data.path, text, config.data.on_bad_row, materials, data));
  RETURN_IF_ERROR(ApplyVocabulary(
      config,
      config.data.path,
      "trained",
      text,
      [&](const Problem& problem) { return meter.ForeignId(problem); },
      data));
  UnfitRows rows;
  const auto total = static_cast<int64_t>(data->problems.size());
  Progress progress("rows measured", total);
  for (int64_t i = 0; i < total; ++i) {
    const Problem& problem = data->problems[static_cast<size_t>(i)];
    LongView longest;
    ASSIGN_OR_RETURN(const int64_t at_most, meter.AtMost(problem, materials));
    if (at_most > limit) {
      ASSIGN_OR_RETURN(longest, meter.Longest(problem));
    }
    rows.Add(longest.tokens <= limit && longest.sampled <= context,
             Describe(problem, longest, context));
    progress.Update(i + 1);
  }
  RETURN_IF_ERROR(rows.Settle(
      config.data.path,
      absl::StrCat("cannot be trained: ", DescribeLimit(config, context)),
      absl::StrCat(
          "lower rollout.max_new_tokens or "
          "objective.max_reference_tokens",
          MostFeedbackTold(config) > 0 ? ", or grader.max_feedback_bytes" : ""),
      config.data.on_bad_row,
      data));
  return CheckCutPrompts(config, text, *data, materials);
}

absl::Status ApplyHeldOutLimits(const Config& config,
                                int64_t context,
                                const TextPipeline& text,
                                Dataset* held_out) {
  const int64_t answer = HeldOutAnswerTokens(config);
  const auto prompt_of =
      [&](const Problem& problem) -> absl::StatusOr<std::vector<int32_t>> {
    auto prompt = HeldOutPrompt(config, *text.views, problem.source());
    if (prompt.ok()) return prompt;
    return RowError(problem, prompt.status());
  };
  MaterialMeter materials(*text.views);
  RETURN_IF_ERROR(ApplyTemplate(config.evaluation.path,
                                text,
                                config.data.on_bad_row,
                                materials,
                                held_out));
  RETURN_IF_ERROR(ApplyVocabulary(
      config,
      config.evaluation.path,
      "evaluated",
      text,
      [&](const Problem& problem) -> absl::StatusOr<std::optional<int32_t>> {
        ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, prompt_of(problem));
        return FirstForeignId(prompt, text);
      },
      held_out));
  UnfitRows rows;
  const auto total = static_cast<int64_t>(held_out->problems.size());
  Progress progress("held-out rows measured", total);
  for (int64_t i = 0; i < total; ++i) {
    const Problem& problem = held_out->problems[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, prompt_of(problem));
    const auto tokens = static_cast<int64_t>(prompt.size());
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
