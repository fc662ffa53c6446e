// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "format/memory_words.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "record/child_process.h"
#include "record/environment.h"
#include "record/sample/nvml.h"
#include "util/file.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kDriverLimit{20};
constexpr std::chrono::seconds kPythonLimit{60};

void Section(std::string_view title) {
  fmt::print("{}\n", title);
}
void Ok(std::string_view text) {
  fmt::print("  ok    {}\n", text);
}
void No(std::string_view text) {
  fmt::print("  no    {}\n", text);
}
void Remark(std::string_view text) {
  fmt::print("  note  {}\n", text);
}

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Asks the driver in a child of ours: it opens devices, and a broken one hangs.
std::string AskDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return "";
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  const auto name_of =
      reinterpret_cast<int (*)(int, const char**)>(dlsym(library, "cuGetErrorName"));
  if (version == nullptr || init == nullptr || count == nullptr) {
    return "no libcuda.so.1 loads but is no CUDA driver: reinstall the driver";
  }
  int number = 0;
  version(&number);
  const std::string text =
      fmt::format("libcuda.so.1 supports CUDA {}.{}", number / 1000, number % 1000 / 10);
  if (const int result = init(0); result != 0) {
    const char* name = nullptr;
    if (name_of == nullptr || name_of(result, &name) != 0 || name == nullptr)
      name = "";
    return fmt::format("no {}, but it does not start: error {} {}", text, result, name);
  }
  int devices = 0;
  count(&devices);
  return fmt::format("ok {}; {} device{} visible to programs", text, devices,
                     devices == 1 ? "" : "s");
}

void CheckDriver() {
  Section("Driver");
  const Captured driver = ForkCaptured(AskDriver, kDriverLimit);
  if (!driver.ended) {
    No("libcuda.so.1 does not answer: look for driver errors in `dmesg`");
  } else if (driver.output.empty()) {
    Remark("no CUDA driver: CPU tensors are recorded, GPU memory cannot be");
  } else if (driver.output.starts_with("ok ")) {
    Ok(driver.output.substr(3));
  } else {
    No(driver.output.substr(3));
  }
  util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load();
  if (!nvml) {
    Remark(nvml.status().message() + ": the recording cannot be compared with device figures");
    return;
  }
  Ok(fmt::format("NVML of driver {}", (*nvml)->DriverVersion()));
  std::vector<NvmlProcess> processes;
  for (size_t gpu = 0; gpu < (*nvml)->gpus().size(); ++gpu) {
    const GpuMonitor::Gpu& device = (*nvml)->gpus()[gpu];
    const std::optional<NvmlMemory> memory = (*nvml)->ReadMemory(gpu);
    if (!memory) {
      No(fmt::format("GPU {} {}: NVML cannot read its memory", device.index, device.name));
      continue;
    }
    Ok(fmt::format("GPU {} {}: {}, {} used", device.index, device.name,
                   util::FormatBytes(memory->total_bytes), util::FormatBytes(memory->used_bytes)));
    if (!(*nvml)->ReadProcesses(gpu, &processes)) {
      Remark(fmt::format("GPU {}: NVML lists no processes here; per-process figures are missing",
                         device.index));
    }
  }
}

// Whether this process sees other PIDs than the machine's.
bool InPidNamespace() {
  // The initial namespace has a fixed inode number in every kernel (PROC_PID_INIT_INO).
  std::error_code error;
  const fs::path link = fs::read_symlink("/proc/self/ns/pid", error);
  return !error && link != "pid:[4026531836]";
}

bool InContainer() {
  std::error_code error;
  if (fs::exists("/.dockerenv", error) || fs::exists("/run/.containerenv", error))
    return true;
  if (getenv("container") != nullptr)
    return true;
  const std::string groups = util::ReadProc(1, "cgroup").value_or("");
  for (const char* word : {"docker", "kubepods", "containerd", "lxc"}) {
    if (groups.find(word) != std::string::npos)
      return true;
  }
  return false;
}

std::string FirstWord(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return std::string(text.substr(0, text.find_first_of(" \t\r\n")));
}

// Other tools between programs and the driver. vramscope leaves all of them in place.
void CheckOtherTools() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = getenv(name);
    return value != nullptr ? value : "";
  };
  if (const std::string preload = variable("LD_PRELOAD"); !preload.empty())
    Remark(fmt::format("LD_PRELOAD contains {}: vramscope keeps it, after the probe", preload));
  const util::Result<std::string> preloaded = util::ReadFile("/etc/ld.so.preload", 1 << 20);
  if (const std::string library = preloaded ? FirstWord(*preloaded) : ""; !library.empty())
    Remark(fmt::format("/etc/ld.so.preload contains {}: it is loaded after the probe", library));
  if (const std::string audit = variable("LD_AUDIT"); !audit.empty())
    Remark(fmt::format("LD_AUDIT contains {}: programs may bypass the probe", audit));
  if (const std::string tool = variable("CUDA_INJECTION64_PATH");
      !tool.empty() && !tool.ends_with("libvramscope_probe.so")) {
    Remark(fmt::format("CUDA_INJECTION64_PATH contains {}: vramscope keeps it", tool));
  }
  std::error_code error;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/capabilities", error)) {
    for (const auto& part : fs::directory_iterator(gpu.path() / "mig", error)) {
      if (!part.path().filename().string().starts_with("gi"))
        continue;
      Remark(fmt::format("{} uses MIG: a program sees only its own part",
                         gpu.path().filename().string()));
      break;
    }
  }
}

void CheckMachine() {
  Section("Machine");
  Ok(fmt::format("glibc {}", gnu_get_libc_version()));
  if (!InContainer() && !InPidNamespace()) {
    Ok("no container");
  } else if (InPidNamespace()) {
    Remark("a container with its own PID namespace: drivers from 535 on translate PIDs;");
    Remark("older ones report the machine's, so per-process figures have no owner");
  } else {
    Remark("a container with the machine's PIDs: NVML's figures of processes have an owner");
  }
  Ok("ptrace and root are not needed");
  CheckOtherTools();
}

// False when no program can be recorded.
bool CheckProbe() {
  Section("Probe");
  util::Result<std::string> probe = FindProbe();
  if (!probe) {
    No(probe.status().message());
    return false;
  }
  std::string probe_path = *probe;
  std::string link_path;
  if (!SuitsPreload(*probe)) {
    Remark("its path has a space or a colon: `run` creates a link to it in /tmp");
    util::Result<std::string> link = LinkProbe(*probe);
    if (!link) {
      No(link.status().message());
      return false;
    }
    probe_path = link_path = *link;
  }
  const Captured maps =
      RunCaptured({"cat", "/proc/self/maps"}, {{"LD_PRELOAD", probe_path}}, kDriverLimit);
  RemoveProbeLink(link_path);
  if (maps.output.find(fs::path(*probe).filename().string()) == std::string::npos) {
    No(fmt::format("{} does not load into a program: {}", *probe, FirstLine(maps.output)));
    Remark("use `vramscope env --injection` instead: it records CUDA calls from cuInit on");
    return false;
  }
  Ok(fmt::format("{} loads into a program", *probe));
  Ok("injection method LD_PRELOAD: every CUDA call is recorded");
  if (NvtxIsOurs()) {
    Ok("NVTX ranges of programs become scopes");
  } else {
    Remark("NVTX_INJECTION64_PATH names another tool, which gets the NVTX ranges");
  }
  if (!KokkosIsOurs())
    Remark("KOKKOS_TOOLS_LIBS names another tool, which gets the labels of Views");
  return true;
}

// The words of a process's command line.
std::vector<std::string> CommandLine(pid_t pid) {
  std::vector<std::string> words;
  const std::string text = util::ReadProc(pid, "cmdline").value_or("");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

pid_t ParentOf(pid_t pid) {
  // "4711 (name) S 4700 ...": the name can hold anything.
  const std::string stat = util::ReadProc(pid, "stat").value_or("");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 4 > stat.size()
             ? 0
             : static_cast<pid_t>(std::atol(stat.c_str() + name_end + 4));
}

// The Python of the notebook that runs this command (`!vramscope doctor`), or "". PATH usually
// leads to another Python there.
std::string PythonOfKernel() {
  constexpr int kMostAncestors = 16;
  pid_t pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = ParentOf(pid)) {
    const std::vector<std::string> words = CommandLine(pid);
    for (size_t word = 1; word < words.size(); ++word) {
      const std::string name = fs::path(words[word]).filename();
      // By name as the kernel was started: /proc/PID/exe leads out of its virtual environment.
      if ((name == "ipykernel_launcher" || name == "ipykernel_launcher.py" ||
           name == "ipykernel") &&
          words[0].starts_with('/'))
        return words[0];
    }
  }
  return "";
}

// A remark where a version is known to be too old for something.
void CheckTorch(std::string_view line) {
  constexpr std::string_view kName = "torch ";
  if (line.starts_with(kName) && format::IsTorchTooOld(line.substr(kName.size())))
    Remark("torch before 2.2: parameters have no names; they and inputs are `unknown`");
}

struct Python {
  std::string path;
  bool has_torch = false;
};

Python CheckPython() {
  Section("Python");
  Python python;
  python.path = PythonOfKernel();
  if (!python.path.empty())
    Ok("Python of this notebook's kernel");
  for (const char* name : {"python", "python3"}) {
    const Program program = FindProgram(name);
    if (!python.path.empty() || program.exit_status != 0)
      continue;
    python.path = program.path;
    break;
  }
  if (python.path.empty()) {
    Remark("no python on PATH: other programs can still be recorded");
    return python;
  }
  // Versions from the package's metadata: importing torch takes seconds.
  const Captured answer =
      RunCaptured({python.path, "-c",
                   "import platform\n"
                   "print(platform.python_implementation(), platform.python_version())\n"
                   "from importlib import metadata\n"
                   "for name in ('torch', 'jax', 'cupy', 'tensorflow', 'vramscope'):\n"
                   "    try: print(name, metadata.version(name))\n"
                   "    except Exception: pass\n"},
                  {}, kPythonLimit);
  if (!answer.ok()) {
    No(fmt::format("{} does not run: {}", python.path, FirstLine(answer.output)));
    python.path.clear();
    return python;
  }
  std::string_view rest = answer.output;
  Ok(fmt::format("{}: {}", python.path, FirstLine(rest)));
  rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
  while (!rest.empty()) {
    const std::string line = FirstLine(rest);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty())
      continue;
    Ok(line);
    python.has_torch |= line.starts_with("torch ");
    CheckTorch(line);
  }
  if (!python.has_torch)
    Remark("torch is not installed for this python");
  return python;
}

// Notes that the launcher itself wrote: they say nothing about what the probe found.
bool IsOfLauncher(std::string_view key) {
  return key == "working_directory" || key == "host" || key == "options";
}

// Records a tiny program and shows what the probe found in it. False when that gave no trace.
bool CheckRecording(const Python& python) {
  Section("A quick recording");
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  util::Result<util::OwnedDirectory> folder =
      util::OwnedDirectory::CreateTemporary((temporary / "vramscope-doctor-").string());
  if (!folder) {
    No(folder.status().message());
    return false;
  }
  const std::string path = folder->path() + "/doctor.vram";
  std::vector<std::string> command = {
      "/proc/self/exe", "run", "--no-report", "--cpu", "-o", path, "--"};
  if (python.has_torch) {
    command.insert(command.end(), {python.path, "-c", "import torch; torch.ones(1000)"});
  } else if (!python.path.empty()) {
    command.insert(command.end(), {python.path, "-c", "pass"});
  } else {
    command.insert(command.end(), {"true"});
  }
  const Captured run = RunCaptured(command, {}, 2 * kPythonLimit);
  bool works = run.ok();
  if (!run.ended) {
    No("the program did not end within two minutes and was killed");
  } else if (!run.ok()) {
    No(fmt::format("the program failed: {}", FirstLine(run.output)));
  } else if (const auto recording = OpenRecording(path); !recording) {
    No(recording.status().message());
    works = false;
  } else if ((*recording)->tables().processes.size() <= 1) {
    Remark("the test program has nothing to record: it uses neither torch nor CUDA");
  } else {
    const tables::Tables& tables = (*recording)->tables();
    Ok(fmt::format("{} events", util::FormatCount(tables.session.event_count)));
    for (const tables::NoteRow& note : tables.notes) {
      const std::string key((*recording)->string(note.key));
      if (!IsOfLauncher(key))
        Ok(fmt::format("{}: {}", key, (*recording)->string(note.value)));
    }
    for (const tables::LossRow& loss : tables.losses)
      Remark(fmt::format("{}: {}", (*recording)->string(loss.name), loss.count));
  }
  if (util::Result<util::OwnedDirectory> live = util::OwnedDirectory::Open(LiveDirectoryOf(path)))
    (void)RemoveLiveDirectory(*live);
  if (const auto recording = FindOldRecording(path))
    (void)util::RemoveFile(path, *recording);
  if (const util::Status removed = folder->RemoveSelf(); !removed.ok())
    Remark(removed.message());
  return works;
}

int Doctor() {
  fmt::print("vramscope {}\n", VRAMSCOPE_VERSION);
  CheckDriver();
  CheckMachine();
  const bool loads = CheckProbe();
  const Python python = CheckPython();
  const bool works = loads && CheckRecording(python);
  fmt::print("{}\n", works ? "Recording works here." : "Recording does not work here.");
  return works ? kExitOk : kExitError;
}

}  // namespace

void RegisterDoctor(CLI::App& app, int* exit_code) {
  CLI::App* const doctor =
      app.add_subcommand("doctor", "Check what can be recorded on this machine");
  doctor->callback([exit_code] { *exit_code = Doctor(); });
}

}  // namespace vramscope::cli
