/* Calls every function with nothing but zeros, each in a process of its own, and prints the answers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned (*function)(long, long, long, long, long, long, long, long, long, long, long, long);

int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    for (int i = 2; i < argc; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            function call = (function)dlvsym(library, argv[i], "DAT_2.0");
            if (!call) _exit(1);
            printf("%s %#x\n", argv[i], call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
            fflush(stdout);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) < 0 || status != 0) printf("%s died\n", argv[i]);
    }
    return 0;
}
