#include "common/config/service_flags.h"

#include "common/base/version.h"
#include "common/config/yaml_text.h"

namespace dapd {

void ServiceFlags::AddTo(CommandLine& line, const std::string& listen_key) {
  listen_key_ = listen_key;
  line.AddVersionFlag(Version);
  line.AddOption("config", config, "YAML configuration").Path().Required();
  line.AddOption("--set", overrides, "key=value, overrides the file").TakeAll();
  line.AddOption("--listen", listen_, "host:port, as " + listen_key).NotEmpty();
}

std::vector<std::string> ServiceFlags::Overrides() const {
  std::vector<std::string> all = overrides;
  if (!listen_.empty()) all.push_back(TextOverride(listen_key_, listen_));
  return all;
}

}  // namespace dapd
