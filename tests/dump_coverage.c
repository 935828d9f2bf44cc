// Linked into every program of the coverage preset: ranks are processes that
// end with _exit, which would not write down what ran in them.
#ifdef __cplusplus
extern "C" {
#endif
void __gcov_dump(void);
void fault_leave(void) __attribute__((weak)); // of tests/faults alone
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
    if (fault_leave)
        fault_leave();
    __gcov_dump();
    __real__exit(status);
}
#ifdef __cplusplus
}
#endif
