// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "format/layout.h"
#include "pipeline/live_directory.h"
#include "record/live_file_writer.h"

// A user records in a folder where another lays links, FIFOs and directories in the way, renames
// what it may and looks for something to read, all the time. Nothing of the first may change or be
// read.
namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kVictim = 12345;
constexpr uid_t kAttacker = 65534;
constexpr int kDefaultTries = 300;
constexpr std::array kNames = {"o.vram", "p.html"};
constexpr std::array kInside = {"launcher.vrl", "session.json", "manifest",
                                "x.vrl",        "stop",         "1.unrecorded"};

size_t Below(size_t limit, unsigned* seed) {
  return static_cast<size_t>(rand_r(seed)) % limit;
}

std::string Random(unsigned* seed) {
  std::string text;
  for (int i = 0; i < 16; ++i)
    text += "0123456789abcdef"[Below(16, seed)];
  return text;
}

// Ends only when it is killed. Whatever it can read of the victim's goes into `loot`.
[[noreturn]] void Attack(const fs::path& shared, const fs::path& home, int loot, unsigned seed) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (setgid(kAttacker) != 0 || setuid(kAttacker) != 0)
    _exit(1);
  const std::array precious = {home / "thesis.txt", home / "live.vrl", home / "old.vram"};
  std::array<ino_t, precious.size()> known{};  // reached through a link of ours: nothing new
  for (size_t i = 0; i < precious.size(); ++i) {
    struct stat info {};
    if (stat(precious[i].c_str(), &info) == 0)
      known[i] = info.st_ino;
  }
  const auto target = [&] { return precious[Below(precious.size(), &seed)]; };
  const auto lay = [&](const fs::path& at) {
    switch (Below(4, &seed)) {
      case 0:
        return symlink(target().c_str(), at.c_str());
      case 1:
        return link(target().c_str(), at.c_str());
      case 2:
        return mkfifo(at.c_str(), 0666);
      default:
        return symlink((home / "new").c_str(), at.c_str());
    }
  };
  const fs::path own = shared / ("own." + std::to_string(getpid()));
  for (;;) {
    const fs::path output = shared / kNames[Below(kNames.size(), &seed)];
    const fs::path live = shared / "o.vram.d";
    const fs::path aside = shared / ("aside." + Random(&seed));
    switch (Below(8, &seed)) {
      case 0:
        (void)lay(output);
        break;
      case 1:
        (void)unlink(output.c_str());
        break;
      case 2:  // a directory of its own, full of traps, in place of the recording's
        if (mkdir(own.c_str(), 0777) == 0) {
          for (const char* name : kInside)
            (void)lay(own / name);
        }
        (void)rename(live.c_str(), aside.c_str());
        (void)rename(own.c_str(), live.c_str());
        break;
      case 3:
        (void)symlink(home.c_str(), live.c_str());
        break;
      case 4:
        (void)rename(output.c_str(), aside.c_str());
        (void)lay(output);
        break;
      case 5: {
        std::error_code error;
        fs::remove_all(live, error);
        fs::remove_all(aside, error);
        break;
      }
      default: {
        // Whatever is there, by whatever name.
        std::error_code error;
        for (fs::recursive_directory_iterator it(shared, error), end; !error && it != end;
             it.increment(error)) {
          struct stat info {};
          if (lstat(it->path().c_str(), &info) != 0 || info.st_uid != kVictim ||
              !S_ISREG(info.st_mode) ||
              std::find(known.begin(), known.end(), info.st_ino) != known.end()) {
            continue;
          }
          const int fd = open(it->path().c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
          if (fd < 0)
            continue;
          const std::string line = it->path().string() + "\n";
          (void)!write(loot, line.data(), line.size());
          close(fd);
        }
      }
    }
  }
}

// What `run` does with files, many times a second.
void Record(const fs::path& shared) {
  const std::string output = shared / kNames[0];
  if (CheckOutput(output).ok()) {
    if (util::Result<util::OwnedDirectory> live =
            util::OwnedDirectory::CreateBeside(LiveDirectoryOf(output))) {
      (void)WriteSessionRecord(*live, {.name = "secret", .command = {"secret"}, .options = ""});
      if (auto file = LiveFileWriter::Create(live->CreateFile(kLauncherFile), {"secret"}))
        (*file)->Write(format::Device{});
      (void)WriteManifest(*live);
      std::optional<util::OwnedDirectory> older;
      (void)PlaceLiveDirectory(&*live, LiveDirectoryOf(output), &older);
      (void)LauncherIsAlive(live->path());
      (void)LiveRecorders(live->path());
      (void)TryFinishLock(live->path());
      (void)RemoveLiveDirectory(*live);
      (void)RemoveOlder(LiveDirectoryOf(output));
    }
  }
  for (const char* name : kNames) {
    const util::Content* const content = name == kNames[0] ? &cli::kFinishedContent : nullptr;
    if (auto file = util::AtomicFile::Create((shared / name).string(), content)) {
      (void)file->Write(std::string_view(trace::kFinishedMagic, sizeof trace::kFinishedMagic));
      (void)file->Write("secret");
      (void)file->Commit();
    }
  }
  if (util::Result<util::OwnedDirectory> left =
          util::OwnedDirectory::Open(LiveDirectoryOf(output))) {
    (void)RemoveLiveDirectory(*left);
  }
}

struct Seen {
  std::string text;
  ino_t inode = 0;
  mode_t mode = 0;
  nlink_t links = 0;
  bool operator==(const Seen&) const = default;
};

std::map<std::string, Seen> Look(const fs::path& home) {
  std::map<std::string, Seen> files;
  for (const auto& entry : fs::directory_iterator(home)) {
    struct stat info {};
    lstat(entry.path().c_str(), &info);
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {
        {std::istreambuf_iterator<char>(file), {}}, info.st_ino, info.st_mode, info.st_nlink};
  }
  return files;
}

class RacesTest : public ::testing::TestWithParam<mode_t> {};

TEST_P(RacesTest, ChangeAndReadNothingOfAnotherUser) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can be two users";
  const char* const wanted = getenv("VRAMSCOPE_RACE_TRIES");
  const int tries = wanted != nullptr ? atoi(wanted) : kDefaultTries;
  std::string folder = (fs::temp_directory_path() / "vramscope_races_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  chmod(folder.c_str(), 0755);
  const fs::path home = fs::path(folder) / "home";
  const fs::path shared = fs::path(folder) / "shared";
  fs::create_directory(home);
  fs::create_directory(shared);
  chmod(shared.c_str(), GetParam());
  std::ofstream(home / "thesis.txt") << "years of work\n";
  std::ofstream(home / "live.vrl")
      << std::string(format::kFileMagic, sizeof format::kFileMagic) << std::string(5000, 'x');
  std::ofstream(home / "old.vram")
      << std::string(trace::kFinishedMagic, sizeof trace::kFinishedMagic) << "of last year";
  for (const auto& entry : fs::directory_iterator(home)) {
    // Others may write it: where the kernel guards hard links, to such files alone they can be
    // laid.
    chmod(entry.path().c_str(), 0666);
    ASSERT_EQ(chown(entry.path().c_str(), kVictim, kVictim), 0);
  }
  ASSERT_EQ(chown(home.c_str(), kVictim, kVictim), 0);
  const std::string loot = folder + "/loot";
  const int loot_fd = open(loot.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const auto before = Look(home);

  std::vector<pid_t> attackers;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    const pid_t pid = fork();
    if (pid == 0)
      Attack(shared, home, loot_fd, seed);
    attackers.push_back(pid);
  }
  const pid_t victim = fork();
  if (victim == 0) {
    umask(0);
    if (setgid(kVictim) != 0 || setuid(kVictim) != 0)
      _exit(1);
    alarm(static_cast<unsigned>(60 + tries / 20));
    for (int i = 0; i < tries; ++i)
      Record(shared);
    _exit(0);
  }
  int status = -1;
  waitpid(victim, &status, 0);
  for (const pid_t pid : attackers) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  EXPECT_EQ(status, 0) << "the victim crashed or was held up";
  auto after = Look(home);
  for (auto& [name, seen] : after)
    seen.links = 1;  // those that the attackers laid
  EXPECT_EQ(after.size(), before.size()) << "something was made in the victim's home";
  for (const auto& [name, seen] : before)
    EXPECT_TRUE(after[name] == seen) << name << " was changed";
  std::ifstream taken(loot);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(taken), {}).substr(0, 1000), "");
  close(loot_fd);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Folders, RacesTest, ::testing::Values(01777, 0777), [](const auto& mode) {
  return mode.param == 01777 ? "Sticky" : "OpenToAll";
});

}  // namespace
}  // namespace vramscope::cli
