// Finds out by rendering whether a chat template shows the system message and
// the tools of a conversation. A template without such support either raises an
// exception or leaves them out silently.
#pragma once

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/tokenizer/chat_template.h"

namespace dapd {

// Return INVALID_ARGUMENT with the reason if the template does not show them.
absl::Status CheckShowsSystem(const ChatTemplate& chat_template);
absl::Status CheckShowsTools(const ChatTemplate& chat_template);

// Returns an error (exit code kConfig) that names the key if the configuration
// gives all rows something that the template does not show: prompts.system,
// data.system, data.tools_column.
absl::Status CheckTemplateSupport(const Config& config,
                                  const ChatTemplate& chat_template);

}  // namespace dapd
