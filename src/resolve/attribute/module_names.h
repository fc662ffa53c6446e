// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/trace.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Which module an address was at an instant. An address names one object from the end of the one
// before it there until its own end; what was last said in that time holds for all of it.
//
//   address -> lifetime -> lifetime before it -> ...       lifetime: {until, path, class, root}
class ModuleNames {
 public:
  static constexpr uint32_t kNone = util::FlatMap::kNone;

  explicit ModuleNames(const trace::Trace& trace)
      : trace_(trace), processes_(trace.processes().size()) {}

  void On(const trace::EventContext& at, const trace::Module& e);
  void On(const trace::EventContext& at, const trace::ModuleGone& e);
  // A parameter that this root owns: it is a model then, not a loss.
  void OnParameter(trace::ProcessId process, uint64_t root);

  // After all events, before what follows.
  void Finish();

  // The lifetime that an object had at that instant, or kNone.
  uint32_t Find(trace::ProcessId process, uint64_t object, int64_t time_ns) const;
  // The path that people know it by: "layer.0.fc", with the model's class before it where the
  // process has several models; a root is its class.
  std::string Path(uint32_t number) const;
  std::string_view Type(uint32_t lifetime) const;
  // The class of the module at that path below a root at that instant, or "". Where none was seen
  // there yet, that of the first one.
  std::string TypeOfPath(uint32_t root, const std::string& path, int64_t time_ns) const;
  // What a path below that root begins with: "", or "Generator.".
  std::string Prefix(uint32_t root) const;

  // A name below what was a root when it was given. While a model is built its parts are roots of
  // their own: what "weight" of such a one was is "fc.weight" of the model that it became a part
  // of.
  struct Below {
    uint32_t root = kNone;
    std::string path;
  };
  Below InWhole(uint32_t root, std::string_view name) const;

 private:
  struct Lifetime {
    int64_t until_ns = INT64_MAX;
    uint64_t root = 0;
    tables::StringId path;
    tables::StringId type;
    trace::ProcessId process;
    uint32_t before = kNone;  // the lifetime before it at that address
    int64_t last_ns = 0;      // when it was last spoken of
    uint32_t number = 1;      // among models of its class in its process
    bool is_root = false;
    bool has_parts = false;  // submodules, or parameters that it is the root of
  };
  // A path can have several classes: `net.fc = merged` replaces a module.
  struct PathType {
    trace::ProcessId process;
    uint64_t root = 0;
    tables::StringId path;
    tables::StringId type;
    int64_t time_ns = 0;
  };
  struct ProcessModules {
    util::FlatMap latest;  // by address
    uint32_t models = 0;   // roots that have parts
  };

  uint32_t LifeOf(trace::ProcessId process, uint64_t object);
  // The model that torch.compile's module is around; of others that one itself.
  uint32_t Compiled(uint32_t number) const;
  std::string RootName(const Lifetime& root) const;

  const trace::Trace& trace_;
  std::vector<Lifetime> lifetimes_;
  std::vector<PathType> path_types_;  // in order of time
  std::map<std::pair<uint32_t, std::string_view>, std::vector<uint32_t>>
      paths_;  // root's lifetime, path -> numbers in path_types_
  std::vector<ProcessModules> processes_;
};

}  // namespace vramscope::resolve
