// SPDX-License-Identifier: Apache-2.0
#include "record/attach/remote_process.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "pipeline/survivors.h"
#include "record/environment.h"
#include "util/file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr unsigned kMostHeaders = 64;
constexpr unsigned kMostDynamic = 256;
constexpr uint32_t kMostInChain = 1 << 16;

uint64_t PageOf(uint64_t address) {
  return address & ~(kPageBytes - 1);
}

// Takes the text up to `end` off the front.
std::string_view Take(std::string_view* text, char end) {
  const std::string_view word = text->substr(0, text->find(end));
  text->remove_prefix(std::min(word.size() + 1, text->size()));
  return word;
}

uint64_t Number(std::string_view text, int base = 10) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

uint32_t GnuHash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name)
    hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

std::string Named(pid_t pid) {
  return fmt::format("process {} ({})", pid, util::ProcCommand(pid));
}

// Whether the mapping, which cannot be written to, holds the beginning of the file.
bool HasContent(pid_t pid, const Mapping& mapping, const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  const util::Result<std::string> file = util::ReadFile(path, kMostBytes);
  if (!file || mapping.writable)
    return false;
  const size_t size = std::min<size_t>(file->size(), mapping.end - mapping.begin);
  std::string there(size, '\0');
  return ReadRemote(pid, mapping.begin, there.data(), size) && file->compare(0, size, there) == 0;
}

std::string WhyNotRunning(pid_t pid, const std::string& status) {
  const std::string state = StatusValue(status, "State");
  if (const uint64_t tracer = Number(StatusValue(status, "TracerPid")); tracer != 0) {
    return fmt::format("{} is traced by {}: end that first", Named(pid),
                       Named(static_cast<pid_t>(tracer)));
  }
  if (state.starts_with("Z") || state.starts_with("X"))
    return fmt::format("{} has ended", Named(pid));
  if (state.starts_with("T"))
    return fmt::format("{} is stopped: continue it with `kill -CONT {}`", Named(pid), pid);
  return "";
}

}  // namespace

std::string StatusValue(std::string_view status, std::string_view key) {
  for (std::string_view line; !status.empty();) {
    line = Take(&status, '\n');
    if (line.starts_with(key) && line.substr(key.size()).starts_with(":\t"))
      return std::string(line.substr(key.size() + 2));
  }
  return "";
}

std::optional<uint64_t> EffectiveId(std::string_view status, std::string_view key) {
  const std::string line = StatusValue(status, key);
  std::string_view numbers = line;
  Take(&numbers, '\t');
  return util::WholeNumber<uint64_t>(Take(&numbers, '\t'));
}

bool HasOwnPids(std::string_view status) {
  return StatusValue(status, "NSpid").find('\t') != std::string::npos;
}

util::Result<std::string> LoadedProbe(pid_t pid, const std::string& probe) {
  constexpr std::string_view kDeleted = " (deleted)";
  for (const Mapping& mapping : ParseMaps(util::ReadProc(pid, "maps").value_or(""))) {
    if (mapping.offset != 0 || !HasProbe(mapping.file))
      continue;
    std::string file = mapping.file;
    if (!HasContent(pid, mapping, probe)) {
      return util::Status::Error(
          fmt::format("{} has loaded {}: use the vramscope that belongs to it", Named(pid), file));
    }
    if (file.ends_with(kDeleted))
      file.resize(file.size() - kDeleted.size());
    // After chroot(2), it has a shorter name there.
    const std::string root = util::ReadProcLink(pid, "root") + "/";
    return file.starts_with(root) ? file.substr(root.size() - 1) : file;
  }
  return std::string();
}

bool ReadRemote(pid_t pid, uint64_t address, void* out, size_t size_bytes) {
  const iovec here{out, size_bytes};
  const iovec there{reinterpret_cast<void*>(address), size_bytes};
  const ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
  if (got >= 0 && static_cast<size_t>(got) != size_bytes)
    errno = EFAULT;
  return got >= 0 && static_cast<size_t>(got) == size_bytes;
}

std::vector<Mapping> ParseMaps(std::string_view maps) {
  std::vector<Mapping> found;
  while (!maps.empty()) {
    std::string_view line = Take(&maps, '\n');
    Mapping mapping;
    mapping.begin = Number(Take(&line, '-'), 16);
    mapping.end = Number(Take(&line, ' '), 16);
    const std::string_view may = Take(&line, ' ');
    mapping.offset = Number(Take(&line, ' '), 16);
    Take(&line, ' ');  // device
    Take(&line, ' ');  // inode
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    mapping.file = line;
    if (may.size() < 3 || mapping.end <= mapping.begin)
      continue;
    mapping.readable = may[0] == 'r';
    mapping.writable = may[1] == 'w';
    mapping.executable = may[2] == 'x';
    found.push_back(std::move(mapping));
  }
  return found;
}

std::optional<RemoteObject> RemoteObject::Open(pid_t pid, uint64_t base) {
  Elf64_Ehdr header{};
  if (!ReadRemote(pid, base, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return {};
  }
  std::vector<Elf64_Phdr> segments(std::min<unsigned>(header.e_phnum, kMostHeaders));
  if (!ReadRemote(pid, base + header.e_phoff, segments.data(),
                  segments.size() * sizeof segments[0]))
    return {};
  const auto first = std::find_if(segments.begin(), segments.end(),
                                  [](const Elf64_Phdr& s) { return s.p_type == PT_LOAD; });
  if (first == segments.end())
    return {};
  const uint64_t bias = base - PageOf(first->p_vaddr);
  RemoteObject object;
  object.pid_ = pid;
  object.bias_ = bias;
  uint64_t dynamic = 0;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_DYNAMIC)
      dynamic = bias + segment.p_vaddr;
    if (segment.p_type != PT_LOAD)
      continue;
    object.extent_ = {base, bias + segment.p_vaddr + segment.p_memsz};
    if ((segment.p_flags & PF_X) == 0)
      continue;
    const uint64_t end = bias + segment.p_vaddr + segment.p_filesz;
    if (segment.p_filesz == segment.p_memsz && PageOf(end) != end)
      object.unused_ = {end, PageOf(end) + kPageBytes};
  }
  for (unsigned i = 0; dynamic != 0 && i < kMostDynamic; ++i) {
    Elf64_Dyn entry{};
    if (!ReadRemote(pid, dynamic + i * sizeof entry, &entry) || entry.d_tag == DT_NULL)
      break;
    // glibc's loader has made addresses of them, musl's has not.
    const uint64_t value = entry.d_un.d_ptr < bias ? bias + entry.d_un.d_ptr : entry.d_un.d_ptr;
    if (entry.d_tag == DT_GNU_HASH)
      object.hash_ = value;
    else if (entry.d_tag == DT_SYMTAB)
      object.symbols_ = value;
    else if (entry.d_tag == DT_STRTAB)
      object.strings_ = value;
  }
  return object;
}

std::optional<RemoteObject::Symbol> RemoteObject::Find(std::string_view name) const {
  // DT_GNU_HASH: a header, a Bloom filter, buckets, and a chain for each bucket.
  struct {
    uint32_t buckets, first_symbol, filter_words, shift;
  } header{};
  if (hash_ == 0 || symbols_ == 0 || strings_ == 0 || !ReadRemote(pid_, hash_, &header) ||
      header.buckets == 0)
    return {};
  const uint64_t buckets = hash_ + sizeof header + uint64_t{header.filter_words} * sizeof(uint64_t);
  const uint64_t chains = buckets + uint64_t{header.buckets} * sizeof(uint32_t);
  const uint32_t wanted = GnuHash(name);
  uint32_t index = 0;
  if (!ReadRemote(pid_, buckets + wanted % header.buckets * sizeof index, &index) ||
      index < header.first_symbol)
    return {};
  for (uint32_t step = 0; step < kMostInChain; ++step, ++index) {
    uint32_t hash = 0;
    if (!ReadRemote(pid_, chains + uint64_t{index - header.first_symbol} * sizeof hash, &hash))
      return {};
    Elf64_Sym symbol{};
    std::string text(name.size() + 1, '\0');
    if ((hash | 1) == (wanted | 1) && ReadRemote(pid_, symbols_ + index * sizeof symbol, &symbol) &&
        ReadRemote(pid_, strings_ + symbol.st_name, text.data(), text.size()) &&
        std::string_view(text.c_str()) == name && symbol.st_shndx != SHN_UNDEF) {
      return Symbol{bias_ + symbol.st_value, symbol.st_size};
    }
    if ((hash & 1) != 0)
      return {};
  }
  return {};
}

std::string WhyNotAttachable(pid_t pid) {
  const std::optional<std::string> status = util::ReadProc(pid, "status");
  if (!status || status->empty())
    return fmt::format("process {} does not exist", pid);
  if (const uint64_t leader = Number(StatusValue(*status, "Tgid"));
      leader != static_cast<uint64_t>(pid))
    return fmt::format("{} is a thread of process {}: name that", pid, leader);
  if (pid == getpid())
    return "a process cannot attach to itself";
  if (std::string why = WhyNotRunning(pid, *status); !why.empty())
    return why;
  const uint64_t user = Number(StatusValue(*status, "Uid"));
  if (geteuid() != 0 && user != geteuid()) {
    return fmt::format("{} belongs to another user ({}): run `sudo vramscope attach {}`",
                       Named(pid), user, pid);
  }
  if (StatusValue(*status, "VmSize").empty())
    return fmt::format("{} is a thread of the kernel", Named(pid));
  if (util::ReadProcLink(pid, "exe").empty())
    return WhyNotPermitted(pid);
  if (StatusValue(*status, "x86_Thread_features").find("shstk") != std::string::npos)
    return fmt::format("{} has a shadow stack: start it with `vramscope run`", Named(pid));
  if (StatusValue(*status, "Seccomp") == "1")
    return fmt::format("{} is in seccomp's strict mode, where every call would end it", Named(pid));
  if (util::ReadProc(pid, "maps").value_or("").find("/ld-musl-") != std::string::npos) {
    return fmt::format("{} uses musl, and the probe is for glibc: use an image with glibc",
                       Named(pid));
  }
  if (const std::string why = WhyNotRecordable(fmt::format("/proc/{}/exe", pid)); !why.empty())
    return fmt::format("{} {}: it cannot be recorded", Named(pid), why);
  return "";
}

std::string WhyNotPermitted(pid_t pid) {
  const util::UniqueFd yama(open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
  struct stat files {};
  const std::optional<uint64_t> user =
      EffectiveId(util::ReadProc(pid, "status").value_or(""), "Uid");
  // The kernel gives the files of a process that is not dumpable to root.
  const bool is_dumpable = !user || stat(fmt::format("/proc/{}/maps", pid).c_str(), &files) != 0 ||
                           files.st_uid == *user;
  return RefusalText({.who = Named(pid),
                      .pid = pid,
                      .yama = util::ReadToEnd(yama.get(), 16).value_or(""),
                      .is_root = geteuid() == 0,
                      .is_dumpable = is_dumpable});
}

std::string RefusalText(const Refusal& refusal) {
  const std::string& who = refusal.who;
  const pid_t pid = refusal.pid;
  if (refusal.yama.starts_with("3")) {
    return fmt::format(
        "{}: the kernel forbids tracing until the next boot (kernel.yama.ptrace_scope is 3): start "
        "the program with `vramscope run`",
        who);
  }
  if (!refusal.is_root && refusal.yama.starts_with("2"))
    return fmt::format("{}: only root may trace here: run `sudo vramscope attach {}`", who, pid);
  if (!refusal.is_root && !refusal.is_dumpable) {
    return fmt::format(
        "{} is set-uid or not dumpable, so only root may trace it: run `sudo vramscope attach {}`",
        who, pid);
  }
  if (!refusal.is_root && refusal.yama.starts_with("1")) {
    return fmt::format(
        "{}: the kernel lets a process trace only its children: run `sudo vramscope attach {}`, or "
        "first `sudo sysctl kernel.yama.ptrace_scope=0`",
        who, pid);
  }
  return fmt::format(
      "{}: tracing is not permitted: run as root; in a container start it with `--cap-add "
      "SYS_PTRACE`",
      who);
}

}  // namespace vramscope::cli
