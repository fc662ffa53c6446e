// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "query/core/parallel.h"
#include "query/dimensions/fold_names.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "query/history/leak_parts.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;

// The share of the iterations at the end in which a model in use runs.
constexpr int64_t kLastShare = 4;

bool IsOfModel(const tables::SiteRow& site) {
  const auto category = site.category;
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState || category == Category::kBuffer;
}

bool IsRun(const tables::SiteRow& site) {
  const auto phase = site.phase;
  return format::RunsModel(phase) || phase == Phase::kBackward || phase == Phase::kOptimizer;
}

// When a site's rows were first allocated and last began.
struct SiteTimes {
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
};

}  // namespace

int32_t ModelUse::ModelOf(const tables::SiteRow& site) const {
  const std::string_view root = query::ModelOf(recording_.string(site.module));
  if (root.empty())
    return -1;
  const tables::AccountRow& account = RowOf(recording_.tables().accounts, site.account);
  const auto found = numbers_.find({account.process, root});
  return found == numbers_.end() ? -1 : found->second;
}

util::Status ModelUse::Read(const LiveSet& live) {
  const tables::Tables& tables = recording_.tables();
  for (size_t i = 1; i < live.sites.size(); ++i) {
    const tables::SiteRow& site = tables.sites[i];
    const std::string_view root = query::ModelOf(recording_.string(site.module));
    if (live.sites[i].bytes == 0 || root.empty() || !IsOfModel(site))
      continue;
    const tables::ProcessId process = RowOf(tables.accounts, site.account).process;
    const auto [known, added] =
        numbers_.try_emplace({process, root}, static_cast<int32_t>(models_.size()));
    if (added) {
      Model& model = models_.emplace_back();
      model.process = process;
      model.name = root;
      model.type = root.substr(0, root.find('#'));
    }
    models_[static_cast<size_t>(known->second)].bytes += live.sites[i].bytes;
  }
  if (models_.size() < 2)
    return {};
  VRAMSCOPE_RETURN_IF_ERROR(ReadTimes());
  Judge();
  return {};
}

util::Status ModelUse::ReadTimes() {
  const std::vector<tables::SiteRow>& sites = recording_.tables().sites;
  std::vector<int32_t> model_of;
  for (const tables::SiteRow& site : sites) {
    const bool counts = site.category == Category::kParameter || IsRun(site);
    model_of.push_back(counts ? ModelOf(site) : -1);
  }
  std::vector<size_t> frames(recording_.frame_count());
  uint64_t rows = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] = i;
    rows += recording_.zone(i).rows;
  }
  std::vector<std::vector<SiteTimes>> found(WorkersFor(rows), std::vector<SiteTimes>(sites.size()));
  VRAMSCOPE_RETURN_IF_ERROR(
      ForEachFrame(recording_, frames, tables::kBeginNs | tables::kAllocNs | tables::kSite,
                   found.size(), [&](size_t worker, const tables::AllocationFrame& frame) {
                     for (size_t i = 0; i < frame.rows; ++i) {
                       const uint32_t site = frame.site[i];
                       if (site >= model_of.size() || model_of[site] < 0)
                         continue;
                       SiteTimes& times = found[worker][site];
                       times.first_ns = std::min(times.first_ns, frame.alloc_ns[i]);
                       times.last_ns = std::max(times.last_ns, frame.begin_ns[i]);
                     }
                   }));
  for (const std::vector<SiteTimes>& part : found) {
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i].first_ns > part[i].last_ns)
        continue;
      Model& model = models_[static_cast<size_t>(model_of[i])];
      if (sites[i].category == Category::kParameter)
        model.made_ns = std::min(model.made_ns, part[i].first_ns);
      if (IsRun(sites[i]))
        model.last_run_ns = std::max(model.last_run_ns, part[i].last_ns);
    }
  }
  return {};
}

void ModelUse::Judge() {
  // Per process the last run of any model, and per class when the newest models were made.
  std::map<tables::ProcessId, int64_t> last_run;
  std::map<std::pair<tables::ProcessId, std::string_view>, std::pair<int64_t, int64_t>> newest;
  for (const Model& model : models_) {
    if (model.made_ns == INT64_MAX)
      continue;
    int64_t& last = last_run.try_emplace(model.process, INT64_MIN).first->second;
    last = std::max(last, model.last_run_ns);
    auto& [made_ns, made_and_run_ns] =
        newest.try_emplace({model.process, model.type}, INT64_MIN, INT64_MIN).first->second;
    made_ns = std::max(made_ns, model.made_ns);
    if (model.HasRun())
      made_and_run_ns = std::max(made_and_run_ns, model.made_ns);
  }
  const IterationTimes times(recording_.tables());
  for (Model& model : models_) {
    if (model.made_ns == INT64_MAX)
      continue;
    const auto& [made_ns, made_and_run_ns] = newest.at({model.process, model.type});
    const ProcessIterations& of = times.Of(model.process);
    const int64_t count = of.count() - of.first();
    if (!model.HasRun()) {
      // Two copies that are made at once, an average and a target, are both in use.
      model.unused = !of.empty() && of.NumberAt(made_ns) > of.NumberAt(model.made_ns);
    } else if (count < kFewestIterations) {
      model.unused = made_and_run_ns > model.last_run_ns;
    } else if (model.last_run_ns <= of.BeginOf(of.count() - 1)) {
      // It does not run in the last iteration: a newer model replaced it, or the training continues
      // without it.
      const int64_t last_ns = of.BeginOf(of.count() - std::max(count / kLastShare, int64_t{2}));
      model.unused = made_and_run_ns > model.last_run_ns ||
                     (model.last_run_ns < last_ns && last_run.at(model.process) >= last_ns);
    }
    unused_count_ += model.unused ? 1 : 0;
  }
}

bool ModelUse::IsUnused(const tables::SiteRow& site) const {
  if (unused_count_ == 0)
    return false;
  const int32_t model = ModelOf(site);
  return model >= 0 && models_[static_cast<size_t>(model)].unused;
}

std::string ModelUse::UnusedNames() const {
  std::map<std::string, uint64_t> names;
  for (const Model& model : models_) {
    if (model.unused)
      names[model.name] += model.bytes;
  }
  return FoldNames(names);
}

}  // namespace vramscope::query
