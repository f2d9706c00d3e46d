/* Fakes one failing system call: in the thread named LIE_THREAD, once the first byte of the file LIE_WHEN is 1, and sets
 * that back. The file is opened when the library is loaded: later, the daemon has no files. std and the daemon rely on
 * the call never failing, so the thread panics. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char *now = MAP_FAILED;

__attribute__((constructor)) static void map(void)
{
	const char *when = getenv("LIE_WHEN");
	int file = when ? open(when, O_RDWR | O_CLOEXEC) : -1;

	if (file >= 0) {
		now = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		close(file);
	}
}

static int lies(void)
{
	const char *thread = getenv("LIE_THREAD");
	char name[16] = "";

	if (!thread || now == MAP_FAILED || prctl(PR_GET_NAME, name) || strcmp(name, thread))
		return 0;
	return __sync_bool_compare_and_swap(now, 1, 0);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_MONOTONIC && lies()) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_clock_gettime, clock, time);
}
