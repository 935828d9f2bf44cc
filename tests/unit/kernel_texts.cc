// The files of codegen/kernels, each alone, with the instance that it has for
// that: as C++, and by NVRTC for three generations of GPUs.
#include <filesystem>
#include <regex>

#include "tests/unit/kernels.h"

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

class KernelTextsNvrtc : public Nvrtc
{
  protected:
    void SetUp() override
    {
        Nvrtc::SetUp();
        if (!IsSkipped())
            library_ = dlopen(hd_nvrtc_path(nvrtc_), RTLD_NOW);
    }
    // The log of a compilation, in which ptxas says what the kernel takes.
    std::string Log(const std::string &text, const std::string &arch)
    {
        const std::string target = "--gpu-architecture=" + arch;
        const char *const options[] = {
            target.c_str(), "-std=c++17",       "-default-device",
            "-w",           "-I" SOURCE_FOLDER, "--ptxas-options=-v"};
        void *program = nullptr;
        size_t bytes = 0;
        std::string log;

        EXPECT_EQ(
            Call<int(void **, const char *, const char *, int, void *, void *)>(
                "nvrtcCreateProgram")(&program, text.c_str(), "alone.cu", 0,
                                      nullptr, nullptr),
            0);
        int result = Call<int(void *, int, const char *const *)>(
            "nvrtcCompileProgram")(program, 6, options);
        Call<int(void *, size_t *)>("nvrtcGetProgramLogSize")(program, &bytes);
        log.resize(bytes);
        Call<int(void *, char *)>("nvrtcGetProgramLog")(program, &log[0]);
        Call<int(void **)>("nvrtcDestroyProgram")(&program);
        EXPECT_EQ(result, 0) << arch << ": " << text << log;
        return log;
    }

  private:
    template <class Function> Function *Call(const char *name)
    {
        return reinterpret_cast<Function *>(dlsym(library_, name));
    }

    void *library_ = nullptr;
};

// Prints a line a kernel: it is what a change of one of them is judged by.
TEST_F(KernelTextsNvrtc, CompileAloneForThreeGenerations)
{
    const std::regex used("Used ([0-9]+) registers");
    const std::regex spilt("([0-9]+) bytes stack frame, ([0-9]+) bytes spill");

    for (const std::string &name : Texts()) {
        bool kernel = Read(name).find("__global__") != std::string::npos;
        std::string line;

        for (const char *arch : {"sm_80", "sm_90a", "sm_100"}) {
            std::string log = Log(Including(name), arch);
            std::smatch registers, frame;

            EXPECT_EQ(std::regex_search(log, registers, used), kernel) << log;
            if (!kernel)
                continue;
            EXPECT_TRUE(std::regex_search(log, frame, spilt)) << log;
            line += std::string("  ") + arch + " " + registers[1].str() + " (" +
                    frame[1].str() + " bytes of stack, " + frame[2].str() +
                    " spilled)";
        }
        std::printf("%-18s registers:%s\n", name.c_str(), line.c_str());
    }
}

} // namespace
