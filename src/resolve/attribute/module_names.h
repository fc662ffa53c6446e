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

// Which module an address was at an instant. An object's lifetime begins when the previous object
// at its address ends. The last name given in a lifetime is valid for all of it.
//
//   address -> lifetime -> lifetime before it -> ...       lifetime: {until, path, class, root}
class ModuleNames {
 public:
  static constexpr uint32_t kNone = util::FlatMap::kNone;

  explicit ModuleNames(const trace::Trace& trace)
      : trace_(trace), processes_(trace.processes().size()) {}

  void On(const trace::EventContext& at, const trace::Module& e);
  void On(const trace::EventContext& at, const trace::ModuleGone& e);
  // A parameter that this root owns. The root is then a model and not, for example, a loss
  // function.
  void OnParameter(trace::ProcessId process, uint64_t root);

  // Call after all events and before the functions below.
  void Finish();

  // The object's lifetime at that instant, or kNone.
  uint32_t Find(trace::ProcessId process, uint64_t object, int64_t time_ns) const;
  // The module's path: "layer.0.fc", after the model's class if the process has several models. A
  // root's path is its class.
  std::string Path(uint32_t number) const;
  std::string_view Type(uint32_t lifetime) const;
  // The class of the module at that path below a root at that instant, or "". Before the first
  // module at the path was seen, the class of that one.
  std::string TypeOfPath(uint32_t root, const std::string& path, int64_t time_ns) const;
  // The prefix of paths below that root: "", or "Generator.".
  std::string Prefix(uint32_t root) const;

  // Renames a path below a former root. While a model is built, its parts are roots of their own:
  // the "weight" of such a part later is the "fc.weight" of its model.
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
    int64_t last_ns = 0;      // when an event last named it
    uint32_t number = 1;      // counts models of its class in its process
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
  // The model that torch.compile wraps; any other module itself.
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
