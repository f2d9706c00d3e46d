/* Fakes one failing system call: in the thread named LIE_THREAD, once the file LIE_WHEN exists. std
 * and the daemon rely on the call never failing, so the thread panics. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int lies(void)
{
	const char *thread = getenv("LIE_THREAD"), *when = getenv("LIE_WHEN");
	char name[16] = "";

	if (!thread || !when || prctl(PR_GET_NAME, name) || strcmp(name, thread))
		return 0;
	return unlink(when) == 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_MONOTONIC && lies()) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_clock_gettime, clock, time);
}
