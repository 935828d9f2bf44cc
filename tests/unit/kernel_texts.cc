// The files of codegen/kernels, each alone, with the instance that it has for
// that: as C++, and by NVRTC for three generations of GPUs.
#include <filesystem>

#include "tests/seed.h"
#include "tests/unit/kernels.h"
#include "tests/words.h"

namespace
{

// "attention", "batch", ..
std::vector<std::string> Texts()
{
    std::vector<std::string> names;

    for (const auto &file :
         std::filesystem::directory_iterator(SOURCE_FOLDER "/codegen/kernels"))
        names.push_back(file.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::string Read(const std::string &name)
{
    std::ifstream file(SOURCE_FOLDER "/codegen/kernels/" + name);

    return {std::istreambuf_iterator<char>(file), {}};
}

std::string Including(const std::string &name)
{
    return "#include \"" SOURCE_FOLDER "/codegen/kernels/" + name + "\"\n";
}

TEST(KernelTexts, CompileAloneAsCxx)
{
    Folder folder;

    EXPECT_GE(Texts().size(), 5u);
    for (const std::string &name : Texts())
        folder.Compile(kHost + Including(name), name + ".so",
                       "-w -I" SOURCE_FOLDER);
}

using KernelTextsNvrtc = Nvrtc;

// Each for one of three generations, another one in each run. Prints a line a
// kernel: it is what a change of one of them is judged by.
TEST_F(KernelTextsNvrtc, CompileAloneForAGeneration)
{
    static const char *const generations[] = {"sm_80", "sm_90a", "sm_100"};
    unsigned drawn = Seed();

    for (const std::string &name : Texts()) {
        const std::string text = Read(name);
        bool kernel = text.find("__global__") != std::string::npos;
        bool hopper = text.find("ARCH_FEAT_SM90_ALL") != std::string::npos;
        const char *arch = hopper ? "sm_90a" : generations[drawn++ % 3];
        std::string log = Log(Including(name), arch, SOURCE_FOLDER);
        std::string used = NumberBefore(log, " registers");
        std::string frame = NumberBefore(log, " bytes stack frame");
        std::string spilt = NumberBefore(log, " bytes spill");

        EXPECT_EQ(used != "", kernel) << log;
        if (kernel) {
            EXPECT_TRUE(frame != "" && spilt != "") << log;
        }
        std::printf(
            "%-18s %-7s registers: %s (%s bytes of stack, %s spilled)\n",
            name.c_str(), arch, used.c_str(), frame.c_str(), spilt.c_str());
    }
}

} // namespace
