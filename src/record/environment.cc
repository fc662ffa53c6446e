// SPDX-License-Identifier: Apache-2.0
#include "record/environment.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "tables/imported.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

constexpr char kProbeName[] = "libvramscope_probe.so";
constexpr char kNvtxVariable[] = "NVTX_INJECTION64_PATH";
constexpr char kKokkosVariable[] = "KOKKOS_TOOLS_LIBS";
constexpr char kOldKokkosVariable[] = "KOKKOS_PROFILE_LIBRARY";
constexpr char kXlaVariable[] = "XLA_FLAGS";
constexpr char kSanitizerVariable[] = "ASAN_OPTIONS";
constexpr char kAnyLinkOrder[] = "verify_asan_link_order=0";

std::string_view Variable(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

// `list` in LD_PRELOAD's form, without any probe of ours: a recording inside a recording is one.
std::string ListWithoutProbe(std::string_view list) {
  std::string kept;
  while (!list.empty()) {
    const size_t end = list.find_first_of(": ");
    const std::string_view entry = list.substr(0, end);
    if (!entry.empty() && !entry.ends_with(kProbeName)) {
      kept += ':';
      kept += entry;
    }
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return kept;
}

// The value of the last --xla_dump_to of XLA_FLAGS, which the shell has not unquoted.
std::optional<std::string> DumpFolderOf(std::string_view flags) {
  constexpr std::string_view kBlanks = " \t\r\n", kName = "--xla_dump_to=";
  std::optional<std::string> folder;
  while (true) {
    flags.remove_prefix(std::min(flags.find_first_not_of(kBlanks), flags.size()));
    if (!flags.starts_with('-'))
      return folder;
    const bool is_it = flags.starts_with(kName);
    const size_t equals = flags.find_first_of("= \t\r\n");
    std::string value;
    if (equals != std::string_view::npos && equals + 1 < flags.size() && flags[equals] == '=' &&
        (flags[equals + 1] == '"' || flags[equals + 1] == '\'')) {
      const char quote = flags[equals + 1];
      size_t at = equals + 2;
      for (; at < flags.size() && flags[at] != quote; ++at) {
        at += quote == '"' && flags[at] == '\\' && at + 1 < flags.size() ? 1U : 0U;
        value += flags[at];
      }
      flags.remove_prefix(std::min(at + 1, flags.size()));
    } else {
      const size_t end = std::min(flags.find_first_of(kBlanks), flags.size());
      if (is_it)
        value = flags.substr(kName.size(), end - kName.size());
      flags.remove_prefix(end);
    }
    if (is_it)
      folder = value;
  }
}

}  // namespace

util::Result<XlaDumpFlags> AddXlaDump(std::string_view flags, const std::string& folder) {
  const size_t first = flags.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && flags[first] != '-') {
    return util::Status::Error(
        "--xla-hlo: XLA_FLAGS names a file of flags: put the flags into the variable");
  }
  XlaDumpFlags added{std::string(flags), folder, false};
  if (!added.flags.empty())
    added.flags += ' ';
  if (const std::optional<std::string> users = DumpFolderOf(flags)) {
    if (users->empty() || *users == "-" || *users == "sponge") {
      return util::Status::Error(fmt::format(
          "--xla-hlo: --xla_dump_to={} in XLA_FLAGS is not a folder: remove it", *users));
    }
    std::error_code error;
    added.folder = std::filesystem::absolute(*users, error).lexically_normal().string();
    added.is_users = true;
  } else {
    std::string quoted;
    for (const char byte : folder) {
      if (byte == '"' || byte == '\\')
        quoted += '\\';
      quoted += byte;
    }
    added.flags += "--xla_dump_to=\"" + quoted + "\" ";
  }
  added.flags += "--xla_dump_hlo_as_text";
  return added;
}

std::string OptionsText(const RecordingOptions& options) {
  std::string text;
  const auto add = [&text](bool wanted, std::string_view name) {
    if (!wanted)
      return;
    if (!text.empty())
      text += ',';
    text += name;
  };
  add(options.cpu, "cpu");
  add(options.no_python, "no-python");
  add(options.native, "native");
  add(options.paused, tables::kPausedOption);
  add(options.unpooled, "unpooled");
  add(options.await_report, "await-report");
  add(!options.session.empty(), "session=" + options.session);
  if (options.overflow_bytes) {
    add(true, *options.overflow_bytes == kNoOverflowBound
                  ? "overflow"
                  : fmt::format("overflow={}", *options.overflow_bytes));
  }
  if (options.ring_bytes != 0)
    add(true, fmt::format("ring={}", options.ring_bytes));
  if (options.pid != 0)
    add(true, fmt::format("pid={}", options.pid));
  return text;
}

util::Result<std::string> FindProbe() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path probe(Variable("VRAMSCOPE_PROBE"));
  const bool named = !probe.empty();
  if (!named) {
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    if (error) {
      return util::Status::Error("cannot read /proc/self/exe: set VRAMSCOPE_PROBE to the path of " +
                                 std::string(kProbeName));
    }
    probe = self.parent_path().parent_path() / "lib" / kProbeName;
  }
  probe = fs::absolute(probe, error);
  if (!fs::is_regular_file(probe, error)) {
    return util::Status::Error(
        named ? fmt::format("VRAMSCOPE_PROBE: {} does not exist: correct the variable, or unset it",
                            probe.string())
              : fmt::format("the probe is missing: {}: build or install vramscope again, or set "
                            "VRAMSCOPE_PROBE to its path",
                            probe.string()));
  }
  return probe.lexically_normal().string();
}

std::string FindPackage() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path above = bin.parent_path().parent_path();
  for (const fs::path& folder : {above, above / "python" / "vramscope"}) {
    if (fs::is_regular_file(folder / "_attached.py", error))
      return folder.string();
  }
  return "";
}

bool NvtxIsOurs() {
  const std::string_view tool = Variable(kNvtxVariable);
  return tool.empty() || tool.ends_with(kProbeName);
}

bool KokkosIsOurs() {
  // Kokkos ends the program if the two differ, and loads only the first tool of a list.
  const std::string_view tool = Variable(kKokkosVariable);
  return Variable(kOldKokkosVariable).empty() && (tool.empty() || tool.ends_with(kProbeName));
}

Variables RecordingVariables(const std::string& probe,
                             const std::string& live_directory,
                             const RecordingOptions& options) {
  Variables variables = {{"LD_PRELOAD", probe + ListWithoutProbe(Variable("LD_PRELOAD"))},
                         {"VRAMSCOPE_DIR", live_directory},
                         {"VRAMSCOPE_OPTIONS", OptionsText(options)}};
  if (NvtxIsOurs())
    variables.emplace_back(kNvtxVariable, probe);
  if (KokkosIsOurs())
    variables.emplace_back(kKokkosVariable, probe);
  // A program built with the address sanitizer, or a child that is, ends at once where its runtime
  // is not the first library. The probe defines nothing of what the runtime intercepts.
  std::string sanitizer(Variable(kSanitizerVariable));
  if (sanitizer.find(kAnyLinkOrder) == std::string::npos)
    sanitizer += (sanitizer.empty() ? "" : ":") + std::string(kAnyLinkOrder);
  variables.emplace_back(kSanitizerVariable, sanitizer);
  if (!options.xla_flags.empty())
    variables.emplace_back(kXlaVariable, options.xla_flags);
  if (options.unpooled) {
    // Every framework that has a cache and a variable to switch it off; what the user says goes.
    for (const auto& [name, value] : {std::pair("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
                                      std::pair("XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
                                      std::pair("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
                                      std::pair("MXNET_GPU_MEM_POOL_TYPE", "Unpooled")}) {
      if (getenv(name) == nullptr)
        variables.emplace_back(name, value);
    }
  }
  return variables;
}

Variables WithoutProbe(Variables variables) {
  std::erase_if(variables, [](const auto& variable) {
    return variable.first == "LD_PRELOAD" || variable.first == kNvtxVariable;
  });
  return variables;
}

bool SuitsPreload(const std::string& path) {
  return path.find_first_of(": ") == std::string::npos;
}

util::Result<std::string> LinkProbe(const std::string& probe) {
  const util::Result<util::OwnedDirectory> folder =
      util::OwnedDirectory::CreateTemporary("/tmp/vramscope-");
  if (!folder) {
    return util::Status::Error(
        fmt::format("the path {} has a space or a colon, which LD_PRELOAD cannot contain, and "
                    "a link to it cannot be created: {}",
                    probe, folder.status().message()));
  }
  std::string link = folder->path() + "/" + kProbeName;
  if (!folder->CreateLink(kProbeName, probe)) {
    return util::Status::Error(fmt::format("cannot create {}: {}", link, util::ErrnoText(errno)));
  }
  return link;
}

void RemoveProbeLink(const std::string& link) {
  if (link.empty())
    return;
  const std::string folder = link.substr(0, link.rfind('/'));
  if (util::Result<util::OwnedDirectory> made = util::OwnedDirectory::Open(folder)) {
    (void)made->RemoveLink(kProbeName);
    (void)made->RemoveSelf();
  }
}

bool HasCudaDriver(int gpu_count) {
  if (gpu_count == 0)
    return false;
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr)
    return false;
  dlclose(driver);
  return true;
}

}  // namespace vramscope::cli
