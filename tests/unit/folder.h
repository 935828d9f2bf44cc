// A folder for a test's files that goes with what is in it, and a compiler for
// small shared libraries.
#ifndef HD_TESTS_UNIT_FOLDER_H
#define HD_TESTS_UNIT_FOLDER_H

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

class Folder
{
  public:
    Folder()
    {
        char path[] = "/tmp/heddle-test-XXXXXX";

        path_ = mkdtemp(path) != nullptr ? path : "";
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    ~Folder()
    {
        if (!path_.empty())
            Run("rm -rf '" + path_ + "'");
    }
    std::string Path(const std::string &name) const
    {
        return path_ + "/" + name;
    }
    // Compiles C++ to a shared library of this name, its folders made, and says
    // where it is.
    std::string Compile(const std::string &text, const std::string &name,
                        const std::string &options = "") const
    {
        std::string at = Path(name), source = Path("source.cc");

        std::ofstream(source) << text;
        Run("mkdir -p \"$(dirname '" + at + "')\"");
        Run("timeout 100 c++ -std=c++17 -O0 -shared -fPIC " + options +
            " -o '" + at + "' '" + source + "'");
        return at;
    }
    static void Run(const std::string &command)
    {
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }

  private:
    std::string path_;
};

#endif
