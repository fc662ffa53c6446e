// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "record/environment.h"

namespace vramscope::cli {
namespace {

class FindProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "find_program_test";
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& text, mode_t mode) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
};

TEST_F(FindProgramTest, LooksInPath) {
  const Program program = FindProgram("sh");
  EXPECT_EQ(program.exit_status, 0) << program.error;
  EXPECT_TRUE(program.path.ends_with("/sh"));
  EXPECT_EQ(program.not_recordable, "");
}

TEST_F(FindProgramTest, SaysWhatIsMissing) {
  EXPECT_EQ(FindProgram("no-such-command-here").exit_status, kExitNotFound);
  EXPECT_EQ(FindProgram("").exit_status, kExitNotFound);
  EXPECT_EQ(FindProgram(folder_ + "/nothing").exit_status, kExitNotFound);
  EXPECT_EQ(FindProgram(folder_).exit_status, kExitNotExecutable);
  EXPECT_EQ(FindProgram(File("plain", "x", 0644)).exit_status, kExitNotExecutable);
}

TEST_F(FindProgramTest, SkipsDirectoriesAndPlainFilesOfPath) {
  const std::string old_path = getenv("PATH");
  std::filesystem::create_directory(folder_ + "/tool");
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(FindProgram("tool").exit_status, kExitNotFound);
  File("plain", "x", 0644);
  EXPECT_EQ(FindProgram("plain").exit_status, kExitNotExecutable);
  setenv("PATH", old_path.c_str(), 1);
}

TEST_F(FindProgramTest, FollowsTheInterpreter) {
  EXPECT_EQ(FindProgram(File("good", "#! /bin/sh -e\ntrue\n", 0755)).exit_status, 0);
  const Program program = FindProgram(File("bad", "#!/no/such/interpreter\n", 0755));
  EXPECT_EQ(program.exit_status, kExitNotExecutable);
  EXPECT_NE(program.error.find("/no/such/interpreter"), std::string::npos);
}

TEST_F(FindProgramTest, SurvivesDamagedElfFiles) {
  const std::string magic(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  EXPECT_EQ(FindProgram(File("short", magic, 0755)).not_recordable, "");
  // Program headers that would lie far outside the file.
  const std::string header = magic + std::string(11, '\0') + "\x3e" + '\0';
  EXPECT_EQ(FindProgram(File("wild", header + std::string(44, '\xff'), 0755)).not_recordable,
            "is statically linked");
  EXPECT_EQ(FindProgram(File("foreign", magic + std::string(57, '\xff'), 0755)).not_recordable,
            "is a program for another processor");
  EXPECT_EQ(FindProgram(File("narrow",
                             "\x7f"
                             "ELF\x01" +
                                 std::string(60, '\0'),
                             0755))
                .not_recordable,
            "is a 32-bit program");
}

TEST(InterpreterOf, ReadsTheFirstLine) {
  EXPECT_EQ(InterpreterOf("#!/bin/sh\n"), "/bin/sh");
  EXPECT_EQ(InterpreterOf("#! /usr/bin/env python3\nx"), "/usr/bin/env");
  EXPECT_EQ(InterpreterOf("#!"), "");
  EXPECT_EQ(InterpreterOf(" #!/bin/sh"), "");
}

TEST(NameOfCommand, IsTheScriptOfAnInterpreter) {
  EXPECT_EQ(NameOfCommand({"./solver"}), "solver");
  EXPECT_EQ(NameOfCommand({"/opt/x/solver.bin", "a"}), "solver");
  EXPECT_EQ(NameOfCommand({"python", "train.py", "--lr", "1"}), "train");
  EXPECT_EQ(NameOfCommand({"/usr/bin/python3.11", "-u", "-X", "dev", "dir/train.py"}), "train");
  EXPECT_EQ(NameOfCommand({"python", "-m", "pkg.tool", "x.py"}), "pkg.tool");
  EXPECT_EQ(NameOfCommand({"python", "-c", "import x"}), "python");
  EXPECT_EQ(NameOfCommand({"bash", "job.sh"}), "job");
  EXPECT_EQ(NameOfCommand({".."}), "program");
}

}  // namespace
}  // namespace vramscope::cli
