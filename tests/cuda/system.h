// What the library asks of the system, where a test has it otherwise: the
// linker sends its calls here first (see CMakeLists.txt).
#ifndef HD_TESTS_CUDA_SYSTEM_H
#define HD_TESTS_CUDA_SYSTEM_H

// From now on the process starts so many threads and no more.
void StartThreads(int most);

// The next nap of this thread takes so long.
void NapFor(double seconds);

// From now on the process takes so long to note what a peer tells of its
// failure, or that one has died.
void HearLate(double seconds);

// How many steps the cpu driver has begun in this process, where a run begins
// and ends among them; and the k-th from now kills it.
long StepsOnCpu();
void DieAtStepOnCpu(long k);

#endif
