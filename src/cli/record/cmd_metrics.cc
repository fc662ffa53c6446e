// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "metrics/collector.h"
#include "metrics/http_server.h"
#include "metrics/metrics_loop.h"
#include "metrics/textfile.h"
#include "pipeline/open_recording.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kShortestReadNs = 100'000'000;
constexpr int64_t kLongestReadNs = 3'600'000'000'000;

struct MetricsArguments {
  std::vector<std::string> what;
  std::string listen = "127.0.0.1:19400";
  std::string textfile;
  std::string period = "15s";
  bool once = false;
};

util::Status Once(const MetricsArguments& arguments) {
  VRAMSCOPE_ASSIGN_OR_RETURN(Collector collector, Collector::Make(arguments.what));
  if (arguments.textfile.empty())
    return PrintOut(collector.Collect());
  VRAMSCOPE_ASSIGN_OR_RETURN(const Textfile file, Textfile::Make(arguments.textfile));
  return file.Write(collector.Collect());
}

util::Status Export(const MetricsArguments& arguments) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int64_t period_ns,
                             ParsePeriod("-i", arguments.period, kShortestReadNs, kLongestReadNs));
  if (arguments.once)
    return Once(arguments);
  if (!arguments.textfile.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const Textfile file, Textfile::Make(arguments.textfile));
    VRAMSCOPE_ASSIGN_OR_RETURN(Collector collector, Collector::Make(arguments.what));
    WriteMetrics(&collector, file, period_ns);
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(HttpServer server, HttpServer::Listen(arguments.listen));
  VRAMSCOPE_ASSIGN_OR_RETURN(Collector collector, Collector::Make(arguments.what));
  Note(fmt::format("metrics at http://{}/metrics", server.address()));
  if (!server.IsLoopback())
    Note("other machines can read them: they contain commands and names of recordings");
  ServeMetrics(&collector, &server, period_ns);
}

}  // namespace

void RegisterMetrics(CLI::App& app, int* exit_code) {
  CLI::App* const metrics =
      app.add_subcommand("metrics", "Export metrics of running programs to Prometheus");
  auto arguments = std::make_shared<MetricsArguments>();
  metrics->add_option("WHAT", arguments->what,
                      "A live recording (NAME, NAME.vram or NAME.vram.d), the ID of a recorded "
                      "process, or a folder of recordings (default: the recordings of all "
                      "processes that you may see)");
  CLI::Option* const listen =
      metrics
          ->add_option("--listen", arguments->listen,
                       "Serve http://ADDRESS/metrics: PORT or HOST:PORT (default: "
                       "127.0.0.1:19400)")
          ->option_text("ADDRESS");
  metrics
      ->add_option("--textfile", arguments->textfile,
                   "Write FILE.prom for the textfile collector of node_exporter instead; it is "
                   "removed at the end")
      ->option_text("FILE")
      ->excludes(listen);
  metrics->add_option("-i", arguments->period, "Read every PERIOD: 500ms, 1s, 60s (default: 15s)")
      ->option_text("PERIOD");
  metrics
      ->add_flag("--once", arguments->once,
                 "Read once and print the metrics, or leave them in the --textfile")
      ->excludes(listen);
  metrics->footer(
      "Reading takes at most a tenth of the time: long recordings are read less often.\n\n"
      "Example: vramscope metrics --textfile /var/lib/node_exporter/vramscope.prom");
  metrics->callback([arguments, exit_code] { *exit_code = ExitOf(Export(*arguments)); });
}

}  // namespace vramscope::cli
