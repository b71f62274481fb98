/* Shifts the wall clock of one process by the seconds in the file WALL_CLOCK_SHIFT names. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
	const char *path = getenv("WALL_CLOCK_SHIFT");
	FILE *file = path ? fopen(path, "re") : NULL;
	long seconds = 0;

	if (file) {
		if (fscanf(file, "%ld", &seconds) != 1)
			seconds = 0;
		fclose(file);
	}
	return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, now);

	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += shift();
	return failed;
}
